// 32 columns of one stored row, taken apart.
#pragma once

#include <cstdint>

#include "linear/formats.h"

namespace forebay {

// value = (code - zero) * (scale * factor) + minimum * min_factor, with the format's zero.
struct Group {
  std::uint8_t code[32];
  std::uint16_t scale, minimum;  // f16
  int factor[2];                 // one per 16 columns; 1 in formats without superblocks, as min_factor
  int min_factor;
};

void unpack_group(const Format& format, const std::uint8_t* row, int group, Group& out);

}  // namespace forebay
