#include "linear/tiles.h"

namespace forebay::FOREBAY_ISA {

namespace {

// One panel (16 outputs) for R rows; each output is one sequential chain over the 32-column groups:
//   idot = sum code * q - zero * sum_q (exact int32)      acc = fma(w_scale * x_scale, idot, acc)
//   with a minimum, after that                            acc = fma(w_min * x_scale, sum_q, acc)
template <Storage S, bool HasMin>
struct PanelKernel {
  const PackedWeight& w;
  const QuantizedRows& x;
  const float* bias;
  float* y;
  int panel;

  template <int R>
  void run(int row) const {
    const std::size_t columns = static_cast<std::size_t>(x.columns), groups = columns / kQuantGroup;
    const std::int8_t* q[R];
    const float* scale[R];
    const std::int32_t* sum[R];
    F32x16 acc[R];
    for (int r = 0; r < R; ++r) {
      q[r] = x.q + (row + r) * columns;
      scale[r] = x.scale + (row + r) * groups;
      sum[r] = x.sum + (row + r) * groups * 2;
      acc[r] = zero();
    }
    const std::uint8_t* at = w.data + panel * w.panel_bytes;
    for (std::size_t group = 0; group < groups; ++group) {
      F32x16 d[R];
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) d[r] = set1(scale[r][group]);
      if constexpr (S == Storage::u8_half_groups) {
        half_group<R>(at, at + 512, 0, q, sum, d, group, acc);
        half_group<R>(at + 256, at + 576, 1, q, sum, d, group, acc);
        at += 640;
      } else {
        whole_group<R>(at, q, sum, d, group, acc);
        at += (S == Storage::u4 ? 320 : 576) + (HasMin ? 64 : 0);
      }
    }
    for (int r = 0; r < R; ++r)
      store_outputs(w, panel, acc[r], bias, y + static_cast<std::size_t>(row + r) * static_cast<std::size_t>(w.rows));
  }

 private:
  template <int R>
  void whole_group(const std::uint8_t* at, const std::int8_t* const (&q)[R], const std::int32_t* const (&sum)[R],
                   const F32x16 (&d)[R], std::size_t group, F32x16 (&acc)[R]) const {
    constexpr bool is_u4 = S == Storage::u4;
    using Dot = std::conditional_t<is_u4, DotU4, DotU8>;
    Dot dot[R];
    FOREBAY_UNROLL
    for (int step = 0; step < (is_u4 ? 4 : 8); ++step) {
      const U8x64 codes = load_u8(at + step * 64);
      const U8x64 low = is_u4 ? low_nibbles(codes) : codes;
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) dot[r].step(low, q[r] + group * 32 + step * 4);
      if constexpr (is_u4) {
        const U8x64 high = high_nibbles(codes);
        FOREBAY_UNROLL
        for (int r = 0; r < R; ++r) dot[r].step(high, q[r] + group * 32 + 16 + step * 4);
      }
    }
    const float* scales = reinterpret_cast<const float*>(at + (is_u4 ? 256 : 512));
    const F32x16 w_scale = load(scales);
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      const std::int32_t sum_q = sum[r][2 * group] + sum[r][2 * group + 1];
      acc[r] = fma(mul(w_scale, d[r]), to_f32(dot[r].finish(-w.zero * sum_q)), acc[r]);
      if constexpr (HasMin) acc[r] = fma(mul(load(scales + 16), d[r]), set1(static_cast<float>(sum_q)), acc[r]);
    }
  }

  template <int R>
  void half_group(const std::uint8_t* at, const std::uint8_t* scales, int half, const std::int8_t* const (&q)[R],
                  const std::int32_t* const (&sum)[R], const F32x16 (&d)[R], std::size_t group,
                  F32x16 (&acc)[R]) const {
    DotU8 dot[R];
    FOREBAY_UNROLL
    for (int step = 0; step < 4; ++step) {
      const U8x64 codes = load_u8(at + step * 64);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) dot[r].step(codes, q[r] + group * 32 + half * 16 + step * 4);
    }
    const F32x16 w_scale = load(reinterpret_cast<const float*>(scales));
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r)
      acc[r] = fma(mul(w_scale, d[r]), to_f32(dot[r].finish(-w.zero * sum[r][2 * group + half])), acc[r]);
  }
};

template <Storage S, bool HasMin>
void run_panels(const PackedWeight& w, const QuantizedRows& x, int rows, int panel_begin, int panel_end,
                const float* bias, float* y) {
  for (int panel = panel_begin; panel < panel_end; ++panel)
    run_tiles<kRowTile>(PanelKernel<S, HasMin>{w, x, bias, y, panel}, 0, rows);
}

}  // namespace

void linear_quantized(const PackedWeight& w, const QuantizedRows& x, int rows, int panel_begin, int panel_end,
                      const float* bias, float* y) {
  const auto run = w.storage == Storage::u8_half_groups ? run_panels<Storage::u8_half_groups, false>
                   : w.storage == Storage::u4
                       ? (w.has_min ? run_panels<Storage::u4, true> : run_panels<Storage::u4, false>)
                   : w.has_min ? run_panels<Storage::u8, true>
                               : run_panels<Storage::u8, false>;
  run(w, x, rows, panel_begin, panel_end, bias, y);
}

}  // namespace forebay::FOREBAY_ISA
