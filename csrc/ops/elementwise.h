// y[i] = f(x[i] ...) over a flat range in steps of 16, the last one masked.
#pragma once

#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

template <class F>
inline void map(const float* x, float* y, std::size_t n, F f) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(x + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_n(y + i, f(load_n(x + i, rest)), rest);
  }
}

template <class F>
inline void map(const float* a, const float* b, float* y, std::size_t n, F f) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_n(y + i, f(load_n(a + i, rest), load_n(b + i, rest)), rest);
  }
}

}  // namespace forebay::FOREBAY_ISA
