// The vocabulary in plain C++: 16 lanes as arrays. Defines what the other instruction sets must equal, bit for bit.
#pragma once

namespace forebay::FOREBAY_ISA {

constexpr int kTileVectors = 1;  // vectors of quantized outputs that a linear kernel keeps in registers
constexpr int kQueryTile = 1;    // queries that attention keeps in registers
constexpr int kFmaChains = 4;    // chains of fma that hide its latency and stay in registers

struct F32x16 {
  float v[16];
};
struct I32x16 {
  std::int32_t v[16];
};
struct U8x64 {
  std::uint8_t v[64];
};

#define FOREBAY_EACH(type, expression)                  \
  type out;                                             \
  for (int i = 0; i < 16; ++i) out.v[i] = (expression); \
  return out

inline F32x16 set1(float a) { FOREBAY_EACH(F32x16, a); }
inline F32x16 zero() { return set1(0.0f); }
inline F32x16 load(const float* p) { FOREBAY_EACH(F32x16, p[i]); }
inline F32x16 load_n(const float* p, int n) { FOREBAY_EACH(F32x16, i < n ? p[i] : 0.0f); }
inline void store(float* p, F32x16 a) { std::memcpy(p, a.v, sizeof a.v); }
inline void store_n(float* p, F32x16 a, int n) { std::memcpy(p, a.v, static_cast<std::size_t>(n) * 4); }

inline F32x16 add(F32x16 a, F32x16 b) { FOREBAY_EACH(F32x16, a.v[i] + b.v[i]); }
inline F32x16 sub(F32x16 a, F32x16 b) { FOREBAY_EACH(F32x16, a.v[i] - b.v[i]); }
inline F32x16 mul(F32x16 a, F32x16 b) { FOREBAY_EACH(F32x16, a.v[i] * b.v[i]); }
inline F32x16 div(F32x16 a, F32x16 b) { FOREBAY_EACH(F32x16, a.v[i] / b.v[i]); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { FOREBAY_EACH(F32x16, ::fmaf(a.v[i], b.v[i], c.v[i])); }
// The second operand when either is NaN, as maxps and minps do.
inline F32x16 max(F32x16 a, F32x16 b) { FOREBAY_EACH(F32x16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline F32x16 min(F32x16 a, F32x16 b) { FOREBAY_EACH(F32x16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
// Lanes where a < b take x, others (NaN too) y.
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  FOREBAY_EACH(F32x16, a.v[i] < b.v[i] ? x.v[i] : y.v[i]);
}
// Whether a lane of either is NaN.
inline bool any_nan(F32x16 a, F32x16 b) {
  bool found = false;
  for (int i = 0; i < 16; ++i) found |= a.v[i] != a.v[i] || b.v[i] != b.v[i];
  return found;
}
// Bit i set where a[i] < b[i].
inline unsigned less_mask(F32x16 a, F32x16 b) {
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= static_cast<unsigned>(a.v[i] < b.v[i]) << i;
  return mask;
}
// The one fixed tree: lane i + 8 onto i, then + 4, + 2, + 1.
inline float reduce_add(F32x16 a) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] + a.v[i + width];
  return a.v[0];
}
inline float reduce_max(F32x16 a) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) a.v[i] = a.v[i] > a.v[i + width] ? a.v[i] : a.v[i + width];
  return a.v[0];
}
// Each lane the largest of its quarter: lanes 4 i to 4 i + 3.
inline F32x16 max_of_quarters(F32x16 a) {
  F32x16 out = set1(-INFINITY);
  for (int i = 0; i < 16; ++i)
    for (int j = i & ~3; j <= (i | 3); ++j) out.v[i] = out.v[i] > a.v[j] ? out.v[i] : a.v[j];
  return out;
}

inline I32x16 set1_i(std::int32_t a) { FOREBAY_EACH(I32x16, a); }
inline I32x16 load_i(const std::uint32_t* p) {
  I32x16 out;
  std::memcpy(out.v, p, sizeof out.v);
  return out;
}
inline I32x16 add_i(I32x16 a, I32x16 b) { FOREBAY_EACH(I32x16, a.v[i] + b.v[i]); }
inline I32x16 sub_i(I32x16 a, I32x16 b) { FOREBAY_EACH(I32x16, a.v[i] - b.v[i]); }
inline I32x16 and_i(I32x16 a, I32x16 b) { FOREBAY_EACH(I32x16, a.v[i] & b.v[i]); }
inline I32x16 or_i(I32x16 a, I32x16 b) { FOREBAY_EACH(I32x16, a.v[i] | b.v[i]); }
inline I32x16 xor_i(I32x16 a, I32x16 b) { FOREBAY_EACH(I32x16, a.v[i] ^ b.v[i]); }
inline I32x16 xor_i(I32x16 a, I32x16 b, I32x16 c) { FOREBAY_EACH(I32x16, a.v[i] ^ b.v[i] ^ c.v[i]); }
// Upper and lower halves of the 64-bit products of unsigned lanes with m.
inline void multiply(I32x16 a, std::uint32_t m, I32x16* high, I32x16* low) {
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t product = std::uint64_t{static_cast<std::uint32_t>(a.v[i])} * m;
    high->v[i] = static_cast<std::int32_t>(product >> 32);
    low->v[i] = static_cast<std::int32_t>(product);
  }
}
inline I32x16 max_i(I32x16 a, I32x16 b) { FOREBAY_EACH(I32x16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline I32x16 min_u(I32x16 a, I32x16 b) {
  FOREBAY_EACH(I32x16, static_cast<std::uint32_t>(a.v[i]) < static_cast<std::uint32_t>(b.v[i]) ? a.v[i] : b.v[i]);
}
template <int N>
inline I32x16 shift_left(I32x16 a) {
  FOREBAY_EACH(I32x16, static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) << N));
}
template <int N>
inline I32x16 shift_right(I32x16 a) {
  FOREBAY_EACH(I32x16, a.v[i] >> N);
}
template <int N>
inline I32x16 shift_right_unsigned(I32x16 a) {
  FOREBAY_EACH(I32x16, static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) >> N));
}
inline void store_i(std::uint32_t* p, I32x16 a) { std::memcpy(p, a.v, sizeof a.v); }
inline F32x16 to_f32(I32x16 a) { FOREBAY_EACH(F32x16, static_cast<float>(a.v[i])); }
inline std::int32_t reduce_add_i(I32x16 a) {
  std::int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.v[i];
  return sum;
}
inline std::int32_t reduce_max_i(I32x16 a) {
  std::int32_t best = a.v[0];
  for (int i = 1; i < 16; ++i) best = a.v[i] > best ? a.v[i] : best;
  return best;
}
inline void store_i8(std::int8_t* p, I32x16 a) {  // values within int8
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(a.v[i]);
}
inline I32x16 bits(F32x16 a) {
  I32x16 out;
  std::memcpy(out.v, a.v, sizeof out.v);
  return out;
}
inline F32x16 from_bits(I32x16 a) {
  F32x16 out;
  std::memcpy(out.v, a.v, sizeof out.v);
  return out;
}

// f16 and bf16: exact widening (NaN made quiet, as F16C does), narrowing to nearest even with denormals.
inline float widen_f16(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
  std::uint32_t word;
  if (rest < 0x400u) {
    const float denormal = static_cast<float>(rest) * 0x1p-24f;
    std::memcpy(&word, &denormal, 4);
  } else if (rest < 0x7c00u) {
    word = (rest << 13) + (112u << 23);
  } else {
    word = (rest << 13) | 0x7f800000u | (rest > 0x7c00u ? 0x400000u : 0u);
  }
  word |= sign;
  float out;
  std::memcpy(&out, &word, 4);
  return out;
}
inline std::uint16_t narrow_f16(float x) {
  std::uint32_t word;
  std::memcpy(&word, &x, 4);
  const std::uint32_t sign = (word >> 16) & 0x8000u;
  std::uint32_t rest = word & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
  if (rest >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (rest < 0x38800000u) {  // a denormal f16: adding 0.5 rounds to its unit, 2^-24
    float magnitude;
    std::memcpy(&magnitude, &rest, 4);
    magnitude += 0.5f;
    std::memcpy(&rest, &magnitude, 4);
    return static_cast<std::uint16_t>(sign | (rest - 0x3f000000u));
  }
  rest += 0xfffu + ((rest >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rest - (112u << 23)) >> 13));
}
inline F32x16 load_f16(const std::uint16_t* p) { FOREBAY_EACH(F32x16, widen_f16(p[i])); }
inline F32x16 load_f16_n(const std::uint16_t* p, int n) { FOREBAY_EACH(F32x16, i < n ? widen_f16(p[i]) : 0.0f); }
inline void store_f16(std::uint16_t* p, F32x16 a) {
  for (int i = 0; i < 16; ++i) p[i] = narrow_f16(a.v[i]);
}
inline void store_f16_n(std::uint16_t* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = narrow_f16(a.v[i]);
}
// Small integers, exactly.
inline F32x16 load_u8_f32(const std::uint8_t* p) { FOREBAY_EACH(F32x16, static_cast<float>(p[i])); }
inline F32x16 load_i8_f32(const std::int8_t* p) { FOREBAY_EACH(F32x16, static_cast<float>(p[i])); }
inline F32x16 load_bf16(const std::uint16_t* p) {
  I32x16 wide;
  for (int i = 0; i < 16; ++i) wide.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(p[i]) << 16);
  return from_bits(wide);
}

inline U8x64 load_u8(const std::uint8_t* p) {
  U8x64 out;
  std::memcpy(out.v, p, 64);
  return out;
}
// The compiler forgets what it knows about `a`.
inline void make_opaque(U8x64& a) { __asm__ volatile("" : "+m"(a)); }
inline U8x64 low_nibbles(U8x64 a) {
  for (int i = 0; i < 64; ++i) a.v[i] &= 15;
  return a;
}
inline U8x64 high_nibbles(U8x64 a) {
  for (int i = 0; i < 64; ++i) a.v[i] >>= 4;
  return a;
}

// Exact dot products of 16 weight rows with one activation row, four columns a step, over at most 32 columns, plus
// `start`: told to both begin and finish, of which one adds it. kRows: how many rows, by kTileVectors, stay in
// registers.
struct DotU8 {
  static constexpr int kRows = 1;
  I32x16 sum = set1_i(0);
  void begin(I32x16 start) { sum = start; }
  void step(U8x64 w, const std::int8_t* a) {
    for (int i = 0; i < 16; ++i)
      sum.v[i] += w.v[4 * i] * a[0] + w.v[4 * i + 1] * a[1] + w.v[4 * i + 2] * a[2] + w.v[4 * i + 3] * a[3];
  }
  I32x16 finish(I32x16) const { return sum; }
};
using DotU4 = DotU8;  // codes of at most 15

inline void transpose(F32x16 (&rows)[16]) {
  for (int i = 0; i < 16; ++i)
    for (int j = i + 1; j < 16; ++j) {
      const float held = rows[i].v[j];
      rows[i].v[j] = rows[j].v[i];
      rows[j].v[i] = held;
    }
}

// y * 2^n for whole n in [-152, 152], in two steps so that a result in the denormal range rounds once; NaN stays.
inline F32x16 times_power_of_two(F32x16 y, F32x16 n) {
  const auto power = [](std::int32_t exponent) {
    const std::int32_t word = (exponent + 127) << 23;
    float out;
    std::memcpy(&out, &word, 4);
    return out;
  };
  F32x16 out;
  for (int i = 0; i < 16; ++i) {
    const std::int32_t whole = n.v[i] == n.v[i] ? static_cast<std::int32_t>(n.v[i]) : 0, half = whole >> 1;
    out.v[i] = y.v[i] * power(half) * power(whole - half);
  }
  return out;
}

// Each quarter (4 lanes) of the rows as a 4 x 4 matrix, transposed.
inline void transpose_quarters(I32x16 (&rows)[4]) {
  for (int quarter = 0; quarter < 16; quarter += 4)
    for (int i = 0; i < 4; ++i)
      for (int j = i + 1; j < 4; ++j) {
        const std::int32_t held = rows[i].v[quarter + j];
        rows[i].v[quarter + j] = rows[j].v[quarter + i];
        rows[j].v[quarter + i] = held;
      }
}

// The exact sum of floor(2^32 w) over at most 2^21 lanes, all in [0, 1].
struct FixedSum {
  std::uint64_t sum = 0;
  void add(F32x16 w) {
    for (int i = 0; i < 16; ++i) sum += static_cast<std::uint64_t>(w.v[i] * 0x1p32f);
  }
  std::uint64_t total() const { return sum; }
};

#undef FOREBAY_EACH

}  // namespace forebay::FOREBAY_ISA
