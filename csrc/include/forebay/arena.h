// Zeroed memory in slices of large buffers: many small arrays share huge pages, which a page each could not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "forebay/aligned_buffer.h"

namespace forebay {

class Arena {
 public:
  // On a cache-line border; lives as long as the arena. Throws std::bad_alloc.
  std::uint8_t* take(std::size_t bytes);

 private:
  std::vector<AlignedBuffer> buffers_;
  std::size_t used_ = 0;  // of the last one
};

}  // namespace forebay
