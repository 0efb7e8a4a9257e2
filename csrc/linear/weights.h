// What a tile of a quantized linear reads of a packed panel (layout in kernels.h): 8 dot steps of codes, scales and
// minimums, per group of 32 columns and vector of 16 outputs.
#pragma once

#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

template <Storage S>
struct Weights {
  static constexpr bool kU4 = S == Storage::u4 || S == Storage::u4_min || S == Storage::u4_k;
  static constexpr bool kSuper = S == Storage::u4_k || S == Storage::u8_k;  // scale and minimum are products
  static constexpr bool kHalves = S == Storage::u8_halves;                  // a scale per 16 columns
  static constexpr bool kMin = kSuper || S == Storage::u4_min || S == Storage::u8_min;
  using Dot = std::conditional_t<kU4, DotU4, DotU8>;
  static constexpr PanelLayout kLayout = kPanelLayouts[static_cast<int>(S)];
  static constexpr int kCodes = kU4 ? 512 : 1024;  // bytes of codes in a group

  // What the dot product with one row starts from: -(zero point) * sum of q.
  static FOREBAY_INLINE I32x16 start(const QuantizedGroup& x, int half) {
    if constexpr (kMin) return set1_i(0);
    if constexpr (kU4) return shift_right<4>(set1_i(x.start));
    if (kHalves && half) return sub_i(set1_i(x.start), set1_i(x.half_start));
    return set1_i(kHalves ? x.half_start : x.start);
  }

  // The i-th step to take: both nibbles of a byte one after the other.
  static constexpr int step(int i) { return kU4 ? i / 2 + i % 2 * 4 : i; }

  static FOREBAY_INLINE U8x64 codes(const std::uint8_t* group, int vector, int step) {
    if constexpr (!kU4) return load_u8(group + vector * 512 + step * 64);
    const U8x64 both = load_u8(group + vector * 256 + step % 4 * 64);
    return step < 4 ? low_nibbles(both) : high_nibbles(both);
  }

  static FOREBAY_INLINE F32x16 scale(const std::uint8_t* head, const std::uint8_t* group, int vector, int half) {
    const std::uint8_t* at = group + kCodes;
    if constexpr (kSuper) return mul(halves(head, vector), load_u8_f32(at + vector * 16));
    if constexpr (kHalves)
      return mul(halves(head, vector), load_i8_f32(reinterpret_cast<const std::int8_t*>(at) + half * 32 + vector * 16));
    return halves(at, vector);
  }

  static FOREBAY_INLINE F32x16 minimum(const std::uint8_t* head, const std::uint8_t* group, int vector) {
    if constexpr (kSuper) return mul(halves(head + 64, vector), load_u8_f32(group + kCodes + 32 + vector * 16));
    return halves(group + kCodes + 64, vector);
  }

 private:
  static FOREBAY_INLINE F32x16 halves(const std::uint8_t* at, int vector) {
    return load_f16(reinterpret_cast<const std::uint16_t*>(at) + vector * 16);
  }
};

}  // namespace forebay::FOREBAY_ISA
