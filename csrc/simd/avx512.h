// The vocabulary on AVX-512 (F, BW, DQ, VL, VNNI). Meanings: see generic.h.
#pragma once

#include <immintrin.h>

namespace forebay::FOREBAY_ISA {

constexpr int kTileVectors = 2;
constexpr int kQueryTile = 6;
constexpr int kFmaChains = 12;

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct U8x64 {
  __m512i v;
};

inline __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

inline F32x16 set1(float a) { return {_mm512_set1_ps(a)}; }
inline F32x16 zero() { return {_mm512_setzero_ps()}; }
inline F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32x16 load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
inline void store_n(float* p, F32x16 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }

inline F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
inline bool any_nan(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_UNORD_Q) != 0; }
inline unsigned less_mask(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
inline float reduce_add(F32x16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float reduce_max(F32x16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline F32x16 max_of_quarters(F32x16 a) {
  const __m512 pairs = _mm512_max_ps(a.v, _mm512_permute_ps(a.v, 0xb1));
  return {_mm512_max_ps(pairs, _mm512_permute_ps(pairs, 0x4e))};
}

inline I32x16 set1_i(std::int32_t a) { return {_mm512_set1_epi32(a)}; }
inline I32x16 load_i(const std::uint32_t* p) { return {_mm512_loadu_si512(p)}; }
inline I32x16 add_i(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32x16 sub_i(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I32x16 and_i(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I32x16 or_i(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
inline I32x16 xor_i(I32x16 a, I32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline I32x16 xor_i(I32x16 a, I32x16 b, I32x16 c) { return {_mm512_ternarylogic_epi32(a.v, b.v, c.v, 0x96)}; }
inline void multiply(I32x16 a, std::uint32_t m, I32x16* high, I32x16* low) {
  const __m512i factor = _mm512_set1_epi64(m);
  const __m512i even = _mm512_mul_epu32(a.v, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
  high->v = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);  // upper halves of even onto even lanes
  low->v = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);   // lower halves of odd onto odd lanes
}
inline I32x16 max_i(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline I32x16 min_u(I32x16 a, I32x16 b) { return {_mm512_min_epu32(a.v, b.v)}; }
template <int N>
inline I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
inline I32x16 shift_right(I32x16 a) {
  return {_mm512_srai_epi32(a.v, N)};
}
template <int N>
inline I32x16 shift_right_unsigned(I32x16 a) {
  return {_mm512_srli_epi32(a.v, N)};
}
inline void store_i(std::uint32_t* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }
inline F32x16 to_f32(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline std::int32_t reduce_add_i(I32x16 a) { return _mm512_reduce_add_epi32(a.v); }
inline std::int32_t reduce_max_i(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }
inline void store_i8(std::int8_t* p, I32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
inline I32x16 bits(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
inline F32x16 from_bits(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }

inline F32x16 load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32x16 load_f16_n(const std::uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
inline __m256i narrow_f16(F32x16 a) { return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline void store_f16(std::uint16_t* p, F32x16 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_f16(a)); }
inline void store_f16_n(std::uint16_t* p, F32x16 a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_f16(a));
}
inline F32x16 load_bf16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

inline F32x16 load_u8_f32(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline F32x16 load_i8_f32(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

inline U8x64 load_u8(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline void make_opaque(U8x64& a) { __asm__ volatile("" : "+v"(a.v)); }
inline U8x64 low_nibbles(U8x64 a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
inline U8x64 high_nibbles(U8x64 a) { return low_nibbles({_mm512_srli_epi16(a.v, 4)}); }

struct DotU8 {
  static constexpr int kRows = 6;
  I32x16 sum = set1_i(0);
  void begin(I32x16 start) { sum = start; }
  void step(U8x64 w, const std::int8_t* a) {
    std::int32_t four;
    std::memcpy(&four, a, 4);
    sum.v = _mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(four));
  }
  I32x16 finish(I32x16) const { return sum; }
};
using DotU4 = DotU8;

inline void transpose(F32x16 (&rows)[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
    t[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
  }
  __m512d quad[16];  // quad[4 i + c]: 128-bit lane L holds column 4 L + c of rows 4 i .. 4 i + 3
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 2]);
    const __m512d c = _mm512_castps_pd(t[i + 1]), d = _mm512_castps_pd(t[i + 3]);
    quad[i] = _mm512_unpacklo_pd(a, b);
    quad[i + 1] = _mm512_unpackhi_pd(a, b);
    quad[i + 2] = _mm512_unpacklo_pd(c, d);
    quad[i + 3] = _mm512_unpackhi_pd(c, d);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512 r0 = _mm512_castpd_ps(quad[c]), r4 = _mm512_castpd_ps(quad[4 + c]);
    const __m512 r8 = _mm512_castpd_ps(quad[8 + c]), r12 = _mm512_castpd_ps(quad[12 + c]);
    const __m512 even_low = _mm512_shuffle_f32x4(r0, r4, 0x88), odd_low = _mm512_shuffle_f32x4(r0, r4, 0xdd);
    const __m512 even_high = _mm512_shuffle_f32x4(r8, r12, 0x88), odd_high = _mm512_shuffle_f32x4(r8, r12, 0xdd);
    rows[c].v = _mm512_shuffle_f32x4(even_low, even_high, 0x88);
    rows[4 + c].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0x88);
    rows[8 + c].v = _mm512_shuffle_f32x4(even_low, even_high, 0xdd);
    rows[12 + c].v = _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd);
  }
}
inline F32x16 times_power_of_two(F32x16 y, F32x16 n) { return {_mm512_scalef_ps(y.v, n.v)}; }

inline void transpose_quarters(I32x16 (&rows)[4]) {
  const __m512i a = rows[0].v, b = rows[1].v, c = rows[2].v, d = rows[3].v;
  const __m512i low_ab = _mm512_unpacklo_epi32(a, b), high_ab = _mm512_unpackhi_epi32(a, b);
  const __m512i low_cd = _mm512_unpacklo_epi32(c, d), high_cd = _mm512_unpackhi_epi32(c, d);
  rows[0].v = _mm512_unpacklo_epi64(low_ab, low_cd);
  rows[1].v = _mm512_unpackhi_epi64(low_ab, low_cd);
  rows[2].v = _mm512_unpacklo_epi64(high_ab, high_cd);
  rows[3].v = _mm512_unpackhi_epi64(high_ab, high_cd);
}

struct FixedSum {
  __m512i low = _mm512_setzero_si512(), high = _mm512_setzero_si512();  // 64-bit sums of lanes 0 to 7, 8 to 15
  void add(F32x16 w) {
    const __m512 scaled = _mm512_mul_ps(w.v, _mm512_set1_ps(0x1p32f));
    low = _mm512_add_epi64(low, _mm512_cvttps_epu64(_mm512_castps512_ps256(scaled)));
    high = _mm512_add_epi64(high, _mm512_cvttps_epu64(_mm512_extractf32x8_ps(scaled, 1)));
  }
  std::uint64_t total() const {
    return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(low, high)));
  }
};

}  // namespace forebay::FOREBAY_ISA
