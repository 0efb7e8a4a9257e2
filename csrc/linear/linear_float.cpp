#include "linear/tiles.h"

namespace forebay::FOREBAY_ISA {

namespace {

template <Storage S>
FOREBAY_INLINE F32x16 load_weights(const std::uint8_t* panel, std::size_t at) {
  if constexpr (S == Storage::f32) return load(reinterpret_cast<const float*>(panel) + at);
  if constexpr (S == Storage::f16) return load_f16(reinterpret_cast<const std::uint16_t*>(panel) + at);
  if constexpr (S == Storage::bf16) return load_bf16(reinterpret_cast<const std::uint16_t*>(panel) + at);
}

// P panels, two vectors of 16 outputs each, for R rows: acc = fma(x[k], w[n][k], acc) over k ascending, from +0.
template <Storage S, int P>
struct FloatTile {
  const PackedWeight& w;
  const float* x;
  const float* residual;
  float* y;
  int panel;  // the first of P

  template <int R>
  __attribute__((noinline)) void run(int row, int, int) const {
    constexpr int V = 2 * P;
    const std::size_t columns = static_cast<std::size_t>(w.columns);
    const std::uint8_t* weights = w.data + static_cast<std::size_t>(panel) * w.panel_bytes;
    const float* in = x + static_cast<std::size_t>(row) * columns;
    F32x16 acc[V][R];
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) acc[v][r] = zero();
    }
    for (std::size_t k = 0; k < columns; ++k) {
      F32x16 column[V];
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v)
        column[v] = load_weights<S>(weights + v / 2 * w.panel_bytes, k * kPanelRows + v % 2 * 16);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) {
        FOREBAY_UNROLL
        for (int v = 0; v < V; ++v) acc[v][r] = fma(set1(in[r * columns + k]), column[v], acc[v][r]);
      }
    }
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v) panel_output(w, panel + v / 2, residual, y).put(row + r, v % 2, acc[v][r]);
    }
  }
};

// One row waits for its chains, so it takes two panels at once.
template <Storage S>
void run_panels(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end, const float* residual,
                float* y) {
  int panel = panel_begin;
  for (; rows == 1 && panel + 2 <= panel_end; panel += 2) FloatTile<S, 2>{w, x, residual, y, panel}.template run<1>(0, 0, 1);
  for (; panel < panel_end; ++panel) run_tiles<kRowTile>(FloatTile<S, 1>{w, x, residual, y, panel}, rows);
}

}  // namespace

void linear_float(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end,
                  const float* residual, float* y) {
  const auto run = w.storage == Storage::f32   ? run_panels<Storage::f32>
                   : w.storage == Storage::f16 ? run_panels<Storage::f16>
                                               : run_panels<Storage::bf16>;
  run(w, x, rows, panel_begin, panel_end, residual, y);
}

}  // namespace forebay::FOREBAY_ISA
