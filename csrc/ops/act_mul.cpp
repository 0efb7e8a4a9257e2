#include "ops/elementwise.h"

namespace forebay::FOREBAY_ISA {

namespace {

F32x16 silu(F32x16 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
F32x16 gelu_tanh(F32x16 x) {
  const F32x16 cube = mul(mul(x, x), x);
  const F32x16 inner = mul(set1(0.7978845608f), fma(set1(0.044715f), cube, x));
  return mul(mul(set1(0.5f), x), add(set1(1.0f), tanh(inner)));
}

}  // namespace

void act_mul(Activation activation, const float* gate, const float* up, float* y, std::size_t n) {
  if (activation == Activation::silu)
    map(gate, up, y, n, [](F32x16 g, F32x16 u) { return mul(silu(g), u); });
  else
    map(gate, up, y, n, [](F32x16 g, F32x16 u) { return mul(gelu_tanh(g), u); });
}

}  // namespace forebay::FOREBAY_ISA
