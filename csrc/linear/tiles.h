// How a linear kernel walks its rows, and where it leaves its outputs.
#pragma once

#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

inline int least(int a, int b) { return a < b ? a : b; }

template <int R, class Kernel>
inline void run_tile(const Kernel& kernel, int count, int row, int tile, int tiles) {
  if (count == R) return kernel.template run<R>(row, tile, tiles);
  if constexpr (R > 1) run_tile<R - 1>(kernel, count, row, tile, tiles);
}

// Calls kernel.template run<R>(row, tile, tiles) for consecutive tiles of R rows covering [0, rows), R at most `Most`
// and as even as can be.
template <int Most, class Kernel>
inline void run_tiles(const Kernel& kernel, int rows) {
  const int tiles = (rows + Most - 1) / Most;
  for (int tile = 0, row = 0; tile < tiles; ++tile) {
    const int count = (rows - row + tiles - tile - 1) / (tiles - tile);
    run_tile<Most>(kernel, count, row, tile, tiles);
    row += count;
  }
}

// The outputs of one panel. y, residual: of row 0; bias: (outputs), or null, as may be residual.
struct PanelOutput {
  float* y;
  const float* residual;
  const float* bias;
  std::size_t stride;  // floats from row to row
  int outputs;         // of the panel that exist, at most 32

  // y = residual + (acc + bias)
  void put(int row, int vector, F32x16 acc) const {
    const int n = least(16, outputs - vector * 16);
    if (n <= 0) return;
    if (bias) acc = add(acc, load_n(bias + vector * 16, n));
    const std::size_t at = static_cast<std::size_t>(row) * stride + static_cast<std::size_t>(vector) * 16;
    if (residual) acc = add(load_n(residual + at, n), acc);
    store_n(y + at, acc, n);
  }
};

inline PanelOutput panel_output(const PackedWeight& w, int panel, const float* residual, float* y) {
  const int first = panel * kPanelRows;
  return {y + first, residual ? residual + first : nullptr, w.bias ? w.bias + first : nullptr,
          static_cast<std::size_t>(w.rows), least(kPanelRows, w.rows - first)};
}

}  // namespace forebay::FOREBAY_ISA
