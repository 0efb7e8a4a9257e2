#include "ops/elementwise.h"

namespace forebay::FOREBAY_ISA {

void add(const float* x, const float* y, float* out, std::size_t n) {
  map(x, y, out, n, [](F32x16 a, F32x16 b) { return add(a, b); });
}

}  // namespace forebay::FOREBAY_ISA
