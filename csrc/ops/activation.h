// The activation functions of a gated MLP, for act_mul and linear_gated.
#pragma once

#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

inline F32x16 silu(F32x16 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
inline F32x16 gelu_tanh(F32x16 x) {
  const F32x16 cube = mul(mul(x, x), x);
  const F32x16 inner = mul(set1(0.7978845608f), fma(set1(0.044715f), cube, x));
  return mul(mul(set1(0.5f), x), add(set1(1.0f), tanh(inner)));
}

}  // namespace forebay::FOREBAY_ISA
