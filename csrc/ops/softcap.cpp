#include "ops/elementwise.h"

namespace forebay::FOREBAY_ISA {

// cap * tanh(x / cap)
void softcap(const float* x, float cap, float* y, std::size_t n) {
  map(x, y, n, [cap](F32x16 a) { return mul(set1(cap), tanh(div(a, set1(cap)))); });
}

}  // namespace forebay::FOREBAY_ISA
