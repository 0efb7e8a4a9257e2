// Zeroed memory on a cache-line border; pages of a large buffer become resident when first touched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);  // throws std::bad_alloc
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void* block_ = nullptr;
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace forebay
