#include "ops/activation.h"
#include "ops/elementwise.h"

namespace forebay::FOREBAY_ISA {

void act_mul(Activation activation, const float* gate, const float* up, float* y, std::size_t n) {
  if (activation == Activation::silu)
    map(gate, up, y, n, [](F32x16 g, F32x16 u) { return mul(silu(g), u); });
  else
    map(gate, up, y, n, [](F32x16 g, F32x16 u) { return mul(gelu_tanh(g), u); });
}

}  // namespace forebay::FOREBAY_ISA
