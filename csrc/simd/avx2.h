// The vocabulary on AVX2, FMA and F16C: 16 lanes are two registers. Meanings: see generic.h.
#pragma once

#include <immintrin.h>

namespace forebay::FOREBAY_ISA {

constexpr int kTileVectors = 1;
constexpr int kQueryTile = 1;
constexpr int kFmaChains = 6;

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct U8x64 {
  __m256i lo, hi;
};

inline F32x16 set1(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline F32x16 load_n(const float* p, int n) {
  if (n == 16) return load(p);
  float held[16] = {};
  std::memcpy(held, p, static_cast<std::size_t>(n) * 4);
  return load(held);
}
inline void store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_n(float* p, F32x16 a, int n) {
  if (n == 16) return store(p, a);
  float held[16];
  store(held, a);
  std::memcpy(p, held, static_cast<std::size_t>(n) * 4);
}

inline F32x16 add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 sub(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 mul(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 div(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline bool any_nan(F32x16 a, F32x16 b) {
  return (_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_UNORD_Q)) |
          _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_UNORD_Q))) != 0;
}
inline unsigned less_mask(F32x16 a, F32x16 b) {
  const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ));
  const int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ));
  return static_cast<unsigned>(lo) | static_cast<unsigned>(hi) << 8;
}
inline float reduce_add(F32x16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float reduce_max(F32x16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline __m256 max_of_quarters(__m256 a) {
  const __m256 pairs = _mm256_max_ps(a, _mm256_permute_ps(a, 0xb1));
  return _mm256_max_ps(pairs, _mm256_permute_ps(pairs, 0x4e));
}
inline F32x16 max_of_quarters(F32x16 a) { return {max_of_quarters(a.lo), max_of_quarters(a.hi)}; }

inline I32x16 set1_i(std::int32_t a) { return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
inline I32x16 load_i(const std::uint32_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline I32x16 add_i(I32x16 a, I32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline I32x16 sub_i(I32x16 a, I32x16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline I32x16 and_i(I32x16 a, I32x16 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline I32x16 or_i(I32x16 a, I32x16 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
inline I32x16 xor_i(I32x16 a, I32x16 b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
inline I32x16 xor_i(I32x16 a, I32x16 b, I32x16 c) { return xor_i(xor_i(a, b), c); }
inline void multiply_8(__m256i a, __m256i factor, __m256i* high, __m256i* low) {
  const __m256i even = _mm256_mul_epu32(a, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
inline void multiply(I32x16 a, std::uint32_t m, I32x16* high, I32x16* low) {
  const __m256i factor = _mm256_set1_epi64x(m);
  multiply_8(a.lo, factor, &high->lo, &low->lo);
  multiply_8(a.hi, factor, &high->hi, &low->hi);
}
inline I32x16 max_i(I32x16 a, I32x16 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
inline I32x16 min_u(I32x16 a, I32x16 b) { return {_mm256_min_epu32(a.lo, b.lo), _mm256_min_epu32(a.hi, b.hi)}; }
template <int N>
inline I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
template <int N>
inline I32x16 shift_right(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, N), _mm256_srai_epi32(a.hi, N)};
}
template <int N>
inline I32x16 shift_right_unsigned(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
inline void store_i(std::uint32_t* p, I32x16 a) {
  __m256i* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}
inline F32x16 to_f32(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline std::int32_t reduce_add_i(I32x16 a) {
  std::int32_t held[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(held), _mm256_add_epi32(a.lo, a.hi));
  return held[0] + held[1] + held[2] + held[3] + held[4] + held[5] + held[6] + held[7];
}
inline std::int32_t reduce_max_i(I32x16 a) {
  const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline void store_i8(std::int8_t* p, I32x16 a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline I32x16 bits(F32x16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
inline F32x16 from_bits(I32x16 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }

inline __m128i load_8_words(const std::uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline F32x16 load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(load_8_words(p)), _mm256_cvtph_ps(load_8_words(p + 8))};
}
inline F32x16 load_f16_n(const std::uint16_t* p, int n) {
  if (n == 16) return load_f16(p);
  std::uint16_t held[16] = {};
  std::memcpy(held, p, static_cast<std::size_t>(n) * 2);
  return load_f16(held);
}
inline void store_f16(std::uint16_t* p, F32x16 a) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, nearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, nearest));
}
inline void store_f16_n(std::uint16_t* p, F32x16 a, int n) {
  std::uint16_t held[16];
  store_f16(held, a);
  std::memcpy(p, held, static_cast<std::size_t>(n) * 2);
}
inline F32x16 load_bf16(const std::uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_words(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_words(p + 8)), 16))};
}

inline F32x16 load_u8_f32(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return to_f32({_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))});
}
inline F32x16 load_i8_f32(const std::int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return to_f32({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}

inline U8x64 load_u8(const std::uint8_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void make_opaque(U8x64& a) { __asm__ volatile("" : "+x"(a.lo), "+x"(a.hi)); }
inline U8x64 low_nibbles(U8x64 a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline U8x64 high_nibbles(U8x64 a) { return low_nibbles({_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)}); }

inline __m256i broadcast_4(const std::int8_t* a) {
  std::int32_t four;
  std::memcpy(&four, a, 4);
  return _mm256_set1_epi32(four);
}

// Even and odd bytes widened to 16 bits: madd is exact where maddubs would saturate on 8-bit codes.
struct DotU8 {
  static constexpr int kRows = 2;
  I32x16 sum = set1_i(0);
  void begin(I32x16 start) { sum = start; }
  static __m256i dot(__m256i w, __m256i even, __m256i odd) {
    const __m256i low = _mm256_madd_epi16(_mm256_and_si256(w, _mm256_set1_epi16(255)), even);
    return _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_srli_epi16(w, 8), odd));
  }
  void step(U8x64 w, const std::int8_t* a) {
    const __m256i both = broadcast_4(a);
    const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(both, 8), 8), odd = _mm256_srai_epi16(both, 8);
    sum.lo = _mm256_add_epi32(sum.lo, dot(w.lo, even, odd));
    sum.hi = _mm256_add_epi32(sum.hi, dot(w.hi, even, odd));
  }
  I32x16 finish(I32x16) const { return sum; }
};

// Codes of at most 15: a maddubs step adds at most 2 * 15 * 127, so 8 steps stay below 2^15 and nothing saturates.
struct DotU4 {
  static constexpr int kRows = 3;
  __m256i lo = _mm256_setzero_si256(), hi = _mm256_setzero_si256();  // 16-bit sums
  void step(U8x64 w, const std::int8_t* a) {
    const __m256i both = broadcast_4(a);
    lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(w.lo, both));
    hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(w.hi, both));
  }
  void begin(I32x16) {}
  I32x16 finish(I32x16 start) const {
    const __m256i ones = _mm256_set1_epi16(1);
    return add_i({_mm256_madd_epi16(lo, ones), _mm256_madd_epi16(hi, ones)}, start);
  }
};

inline void transpose_8(__m256 (&r)[8]) {
  __m256 t[8], quad[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    quad[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm256_permute2f128_ps(quad[c], quad[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps(quad[c], quad[4 + c], 0x31);
  }
}
inline void transpose(F32x16 (&rows)[16]) {
  __m256 quarter[2][2][8];  // [row half][column half]
  for (int i = 0; i < 16; ++i) {
    quarter[i / 8][0][i % 8] = rows[i].lo;
    quarter[i / 8][1][i % 8] = rows[i].hi;
  }
  for (auto& row_half : quarter)
    for (auto& tile : row_half) transpose_8(tile);
  for (int i = 0; i < 16; ++i) rows[i] = {quarter[0][i / 8][i % 8], quarter[1][i / 8][i % 8]};
}

inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 times_power_of_two(__m256 y, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(y, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
}
inline F32x16 times_power_of_two(F32x16 y, F32x16 n) {
  return {times_power_of_two(y.lo, n.lo), times_power_of_two(y.hi, n.hi)};
}

inline void transpose_quarters(__m256i& a, __m256i& b, __m256i& c, __m256i& d) {
  const __m256i low_ab = _mm256_unpacklo_epi32(a, b), high_ab = _mm256_unpackhi_epi32(a, b);
  const __m256i low_cd = _mm256_unpacklo_epi32(c, d), high_cd = _mm256_unpackhi_epi32(c, d);
  a = _mm256_unpacklo_epi64(low_ab, low_cd);
  b = _mm256_unpackhi_epi64(low_ab, low_cd);
  c = _mm256_unpacklo_epi64(high_ab, high_cd);
  d = _mm256_unpackhi_epi64(high_ab, high_cd);
}
inline void transpose_quarters(I32x16 (&rows)[4]) {
  transpose_quarters(rows[0].lo, rows[1].lo, rows[2].lo, rows[3].lo);
  transpose_quarters(rows[0].hi, rows[1].hi, rows[2].hi, rows[3].hi);
}

// In doubles: sums of integers below 2^53 are exact.
struct FixedSum {
  __m256d sums[4] = {};
  void add_8(__m256 w, __m256d& low, __m256d& high) {
    const __m256 whole = _mm256_floor_ps(_mm256_mul_ps(w, _mm256_set1_ps(0x1p32f)));
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(whole)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(whole, 1)));
  }
  void add(F32x16 w) {
    add_8(w.lo, sums[0], sums[1]);
    add_8(w.hi, sums[2], sums[3]);
  }
  std::uint64_t total() const {
    double held[4];
    _mm256_storeu_pd(held, _mm256_add_pd(_mm256_add_pd(sums[0], sums[1]), _mm256_add_pd(sums[2], sums[3])));
    return static_cast<std::uint64_t>((held[0] + held[1]) + (held[2] + held[3]));
  }
};

}  // namespace forebay::FOREBAY_ISA
