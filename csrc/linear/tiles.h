// How a linear kernel walks its rows: tiles of kRowTile rows, the rest in halves. A tile's bits do not depend on its
// size.
#pragma once

#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

// Calls kernel.template run<R>(row) for consecutive tiles of R rows covering [0, rows).
template <int R, class Kernel>
inline int run_tiles(const Kernel& kernel, int row, int rows) {
  for (; row + R <= rows; row += R) kernel.template run<R>(row);
  if constexpr (R > 1)
    return run_tiles<R / 2>(kernel, row, rows);
  else
    return row;
}

// One panel's 16 outputs of one row, bias added after the chain.
inline void store_outputs(const PackedWeight& w, int panel, F32x16 acc, const float* bias, float* y) {
  const int n = w.rows - panel * 16 < 16 ? w.rows - panel * 16 : 16;
  if (bias) acc = add(acc, load_n(bias + panel * 16, n));
  store_n(y + panel * 16, acc, n);
}

}  // namespace forebay::FOREBAY_ISA
