// V vectors of 16 outputs for R rows in registers; W is Weights of a storage. Each output is one sequential chain over
// the groups of 32 columns:
//   dot = sum code * q - zero * sum q (exact int32)     acc = fma(w_scale * x_scale, dot, acc)
//   with a minimum, after that                          acc = fma(w_min, x_scaled_sum, acc)
// u8_halves does the first per 16 columns.
#pragma once

#include "linear/tiles.h"
#include "linear/weights.h"

namespace forebay::FOREBAY_ISA {

template <class W, int V>
struct DotTile {
  const std::uint8_t* panel;
  const QuantizedRows& x;
  const PanelOutput& out;
  const std::uint8_t* next;  // the panel to fetch meanwhile, or null
  int vector;                // the first of V

  // Tile number `tile` of `tiles`, which fetch the next panel together.
  template <int R>
  __attribute__((noinline)) void run(int row, int tile, int tiles) const {
    const int groups = x.columns / kQuantGroup;
    const QuantizedGroup* in[R];
    F32x16 acc[V][R];
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      in[r] = x.groups + static_cast<std::size_t>(row + r) * static_cast<std::size_t>(groups);
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) acc[v][r] = zero();
    }
    constexpr int kLines = W::kLayout.group_bytes / 64;
    const int first_line = kLines * tile / tiles, last_line = next ? kLines * (tile + 1) / tiles : 0;
    const std::uint8_t *at = panel, *ahead = next ? next : panel;
    for (int left = groups; left > 0; left -= W::kLayout.groups) {
      const std::uint8_t* head = at;
      at += W::kLayout.head_bytes;
      ahead += W::kLayout.head_bytes;
      for (int group = 0; group < W::kLayout.groups; ++group) {
        for (int line = first_line; line < last_line; ++line) prefetch(ahead + line * 64);
        add_group(head, at, in, acc);
        at += W::kLayout.group_bytes;
        ahead += W::kLayout.group_bytes;
        FOREBAY_UNROLL
        for (int r = 0; r < R; ++r) ++in[r];
      }
    }
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) out.put(row + r, vector + v, acc[v][r]);
    }
  }

 private:
  template <int R>
  FOREBAY_INLINE void add_group(const std::uint8_t* head, const std::uint8_t* group,
                                const QuantizedGroup* const (&in)[R], F32x16 (&acc)[V][R]) const {
    if constexpr (W::kHalves) {
      add_dots<4>(head, group, 0, in, acc);
      add_dots<4>(head, group, 1, in, acc);
    } else {
      add_dots<8>(head, group, 0, in, acc);
    }
    if constexpr (W::kMin) {
      F32x16 minimum[V];
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) minimum[v] = W::minimum(head, group, vector + v);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) {
        FOREBAY_UNROLL
        for (int v = 0; v < V; ++v) acc[v][r] = fma(minimum[v], set1(in[r]->scaled_sum), acc[v][r]);
      }
    }
  }

  // Of `Steps` steps of four columns, all of a group or a half.
  template <int Steps, int R>
  FOREBAY_INLINE void add_dots(const std::uint8_t* head, const std::uint8_t* group, int half,
                               const QuantizedGroup* const (&in)[R], F32x16 (&acc)[V][R]) const {
    typename W::Dot dot[V][R];
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) dot[v][r].begin(W::start(*in[r], half));
    }
    FOREBAY_UNROLL
    for (int i = 0; i < Steps; ++i) {
      const int step = W::step(half * Steps + i);
      U8x64 codes[V];
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) codes[v] = W::codes(group, vector + v, step);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) {
        FOREBAY_UNROLL
        for (int v = 0; v < V; ++v) dot[v][r].step(codes[v], in[r]->q + step * 4);
      }
    }
    F32x16 scale[V];
    FOREBAY_UNROLL
    for (int v = 0; v < V; ++v) scale[v] = W::scale(head, group, vector + v, half);
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) {
        const F32x16 product = to_f32(dot[v][r].finish(W::start(*in[r], half)));
        acc[v][r] = fma(mul(scale[v], set1(in[r]->scale)), product, acc[v][r]);
      }
    }
  }
};

}  // namespace forebay::FOREBAY_ISA
