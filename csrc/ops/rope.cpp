#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

void rotate(const float* x, float* y, const float* cos, const float* sin, int half, int n) {
  const F32x16 a = load_n(x, n), b = load_n(x + half, n), c = load_n(cos, n), s = load_n(sin, n);
  store_n(y, fma(a, c, sub(zero(), mul(b, s))), n);
  store_n(y + half, fma(b, c, mul(a, s)), n);
}

}  // namespace

// One row of heads at one position: y_i = fma(x_i, cos, -(x_j sin)), y_j = fma(x_j, cos, x_i sin) with j = i + rotary
// / 2.
void rope(const float* x, float* y, int heads, int head_dim, const float* cos, const float* sin, int rotary_dim) {
  const int half = rotary_dim / 2;
  for (int head = 0; head < heads; ++head, x += head_dim, y += head_dim) {
    for (int i = 0; i < half; i += 16) rotate(x + i, y + i, cos + i, sin + i, half, half - i < 16 ? half - i : 16);
    for (int i = rotary_dim; i < head_dim; ++i) y[i] = x[i];
  }
}

}  // namespace forebay::FOREBAY_ISA
