#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

// y = (x * r) * weight with r = 1 / sqrt(mean(x^2) + eps), per group of `width` values. The sum of squares runs in 16
// lanes over ascending chunks, then the fixed tree; square root and divisions are IEEE.
void rms_norm(const float* x, const float* weight, float* y, std::size_t groups, int width, float eps) {
  const int whole = width / 16 * 16, rest = width - whole;
  for (std::size_t group = 0; group < groups; ++group, x += width, y += width) {
    F32x16 squares = zero();
    for (int i = 0; i < whole; i += 16) squares = fma(load(x + i), load(x + i), squares);
    if (rest) squares = fma(load_n(x + whole, rest), load_n(x + whole, rest), squares);
    const F32x16 r = set1(1.0f / __builtin_sqrtf(reduce_add(squares) / static_cast<float>(width) + eps));
    for (int i = 0; i < whole; i += 16) store(y + i, mul(mul(load(x + i), r), load(weight + i)));
    if (rest) store_n(y + whole, mul(mul(load_n(x + whole, rest), r), load_n(weight + whole, rest)), rest);
  }
}

}  // namespace forebay::FOREBAY_ISA
