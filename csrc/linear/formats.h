// Weight formats as stored in model files, and their exact repacking for the kernels. Names as in weights/formats.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/arena.h"
#include "forebay/kernels.h"

namespace forebay {

class ThreadPool;

enum class Stored { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

struct Format {
  const char* name;
  Stored stored;
  int block_size, block_bytes;  // along a row
  Storage storage;              // what the kernels read
  int zero;                     // value = scale * (code - zero) + minimum
  bool has_min;

  bool quantized() const { return block_size > 1; }
  std::size_t row_bytes(int columns) const {
    return static_cast<std::size_t>(columns / block_size) * static_cast<std::size_t>(block_bytes);
  }
};

const Format& find_format(const std::string& name);  // throws std::invalid_argument

// One stored row as float32, bit for bit what the format's specification says.
void dequantize_row(const Format& format, const std::uint8_t* row, int columns, float* out);

// The panels of (rows, columns) stored values, in memory of `arena`.
PackedWeight pack(const Format& format, const std::uint8_t* data, int rows, int columns, ThreadPool& pool,
                  Arena& arena);

}  // namespace forebay
