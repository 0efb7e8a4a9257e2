#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

// The KV cache's f16: round to nearest even, denormals kept.
void to_f16(const float* x, std::uint16_t* y, int n) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store_f16(y + i, load(x + i));
  if (i < n) store_f16_n(y + i, load_n(x + i, n - i), n - i);
}

}  // namespace forebay::FOREBAY_ISA
