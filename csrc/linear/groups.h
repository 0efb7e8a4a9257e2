// 32 columns of one stored row, taken apart.
#pragma once

#include <cstdint>

#include "linear/formats.h"

namespace forebay {

struct Group {
  std::uint8_t code[32];
  float scale[2];  // one per 16 columns; both the same except in q6_k
  float min;
};

void unpack_group(const Format& format, const std::uint8_t* row, int group, Group& out);

}  // namespace forebay
