#include "forebay/aligned_buffer.h"

#include <cstdlib>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace forebay {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  block_ = std::calloc(bytes + alignment, 1);
  if (!block_) throw std::bad_alloc();
  const std::uintptr_t address = (reinterpret_cast<std::uintptr_t>(block_) + alignment - 1) / alignment * alignment;
  data_ = reinterpret_cast<std::uint8_t*>(address);
#ifdef __linux__
  if (bytes >= kHugePage) madvise(data_, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
}

AlignedBuffer::~AlignedBuffer() { std::free(block_); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace forebay
