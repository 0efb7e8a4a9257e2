// exp, tanh and log over the vocabulary: one operation sequence for every instruction set.
#pragma once

namespace forebay::FOREBAY_ISA {

constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds |x| < 2^22 to the nearest even integer

inline F32x16 magnitude(F32x16 x) { return from_bits(and_i(bits(x), set1_i(INT32_MAX))); }
inline I32x16 round_i(F32x16 x) { return sub_i(bits(add(x, set1(kRoundMagic))), bits(set1(kRoundMagic))); }

// exp(x), about 1 ulp (Cephes expf); exp(-inf) = 0, overflow is inf, NaN stays.
inline F32x16 exp(F32x16 x) {
  x = min(set1(89.0f), max(set1(-105.0f), x));
  const F32x16 shifted = fma(x, set1(1.44269504088896341f), set1(kRoundMagic));
  const F32x16 n = sub(shifted, set1(kRoundMagic));
  F32x16 r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F32x16 p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  const F32x16 y = add(fma(p, mul(r, r), r), set1(1.0f));
  return times_power_of_two(y, n);
}

// tanh(x) (Cephes tanhf): a polynomial near 0, 1 - 2 / (exp(2 |x|) + 1) with the sign of x elsewhere.
inline F32x16 tanh(F32x16 x) {
  const I32x16 sign = and_i(bits(x), set1_i(INT32_MIN));
  const F32x16 size = magnitude(x);
  const F32x16 z = mul(x, x);
  F32x16 p = set1(-5.70498872745e-3f);
  p = fma(p, z, set1(2.06390887954e-2f));
  p = fma(p, z, set1(-5.37397155531e-2f));
  p = fma(p, z, set1(1.33314422036e-1f));
  p = fma(p, z, set1(-3.33332819422e-1f));
  const F32x16 near_zero = fma(mul(p, z), x, x);
  const F32x16 e = exp(add(size, size));
  const F32x16 far = sub(set1(1.0f), div(set1(2.0f), add(e, set1(1.0f))));
  return select_less(size, set1(0.625f), near_zero, from_bits(or_i(bits(far), sign)));
}

// Natural logarithm of a positive normal double, below 1 ulp (fdlibm e_log.c, constants as printed there).
inline double log(double x) {
  std::uint64_t word;
  std::memcpy(&word, &x, 8);
  // Split x = 2^k (1 + f) with 1 + f in about [sqrt(2) / 2, sqrt(2)).
  const std::uint64_t offset = 0x3fe6a09e667f3bcdull;  // sqrt(2) / 2
  const std::int64_t k = static_cast<std::int64_t>(word - offset) >> 52;
  word -= static_cast<std::uint64_t>(k) << 52;
  double m;
  std::memcpy(&m, &word, 8);
  const double f = m - 1.0;
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double t2 =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f, dk = static_cast<double>(k);
  return dk * 6.93147180369123816490e-01 -
         ((half_square - (s * (half_square + (t1 + t2)) + dk * 1.90821492927058770002e-10)) - f);
}

}  // namespace forebay::FOREBAY_ISA
