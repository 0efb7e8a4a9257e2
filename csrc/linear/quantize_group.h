// 32 activations to int8, for quantize and linear_gated.
#pragma once

#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

// scale = max|x| / 127, q = round-to-nearest-even(x * (1 / scale)). A NaN or inf makes the scale NaN, so that every
// output of the row is NaN and the row is reported; a group below float's normal range quantizes to zeros.
inline void quantize_group(F32x16 a, F32x16 b, QuantizedGroup* out) {
  const std::int32_t largest = reduce_max_i(max_i(bits(magnitude(a)), bits(magnitude(b))));
  float amax;
  std::memcpy(&amax, &largest, 4);
  const float scale = amax / 127.0f;
  const bool finite = largest < 0x7f800000;
  const F32x16 inverse = set1(finite && scale >= FLT_MIN ? 1.0f / scale : 0.0f);
  const I32x16 qa = finite ? round_i(mul(a, inverse)) : set1_i(0), qb = finite ? round_i(mul(b, inverse)) : set1_i(0);
  store_i8(out->q, qa);
  store_i8(out->q + 16, qb);
  const std::int32_t first = reduce_add_i(qa), sum = first + reduce_add_i(qb);
  out->scale = finite ? scale : __builtin_nanf("");
  out->scaled_sum = out->scale * static_cast<float>(sum);
  out->start = -128 * sum;
  out->half_start = -128 * first;
}

}  // namespace forebay::FOREBAY_ISA
