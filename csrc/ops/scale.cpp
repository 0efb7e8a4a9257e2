#include "ops/elementwise.h"

namespace forebay::FOREBAY_ISA {

void scale(const float* x, float factor, float* y, std::size_t n) {
  map(x, y, n, [factor](F32x16 a) { return mul(a, set1(factor)); });
}

}  // namespace forebay::FOREBAY_ISA
