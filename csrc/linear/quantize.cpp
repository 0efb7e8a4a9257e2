#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

F32x16 magnitude(F32x16 x) { return from_bits(and_i(bits(x), set1_i(INT32_MAX))); }

// 32 values: scale = max|x| / 127, q = round-to-nearest-even(x * (1 / scale)). A NaN or inf makes the scale NaN, so
// that every output of the row is NaN and the row is reported; a group below float's normal range quantizes to zeros.
float quantize_group(const float* x, std::int8_t* q, std::int32_t* sum) {
  const F32x16 a = load(x), b = load(x + 16);
  const std::int32_t largest = reduce_max_i(max_i(bits(magnitude(a)), bits(magnitude(b))));
  float amax;
  std::memcpy(&amax, &largest, 4);
  const float scale = amax / 127.0f;
  const bool finite = largest < 0x7f800000;
  const F32x16 inverse = set1(finite && scale >= FLT_MIN ? 1.0f / scale : 0.0f);
  const I32x16 qa = finite ? round_i(mul(a, inverse)) : set1_i(0), qb = finite ? round_i(mul(b, inverse)) : set1_i(0);
  store_i8(q, qa);
  store_i8(q + 16, qb);
  sum[0] = reduce_add_i(qa);
  sum[1] = reduce_add_i(qb);
  return finite ? scale : __builtin_nanf("");
}

}  // namespace

void quantize(const float* x, int row_begin, int row_end, const QuantizedRows& out) {
  const std::size_t columns = static_cast<std::size_t>(out.columns), groups = columns / kQuantGroup;
  for (std::size_t group = row_begin * groups; group < row_end * groups; ++group)
    out.scale[group] = quantize_group(x + group * 32, out.q + group * 32, out.sum + group * 2);
}

}  // namespace forebay::FOREBAY_ISA
