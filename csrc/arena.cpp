#include "forebay/arena.h"

#include <algorithm>

namespace forebay {

namespace {

constexpr std::size_t kBuffer = std::size_t{32} << 20;  // address space; pages come when first written

}  // namespace

std::uint8_t* Arena::take(std::size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (buffers_.empty() || buffers_.back().size() - used_ < bytes) {
    buffers_.emplace_back(std::max(bytes, kBuffer));
    used_ = 0;
  }
  std::uint8_t* slice = buffers_.back().data() + used_;
  used_ += bytes;
  return slice;
}

}  // namespace forebay
