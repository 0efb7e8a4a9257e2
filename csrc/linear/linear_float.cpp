#include "linear/tiles.h"

namespace forebay::FOREBAY_ISA {

namespace {

template <Storage S>
FOREBAY_INLINE F32x16 load_weights(const std::uint8_t* panel, std::size_t at) {
  if constexpr (S == Storage::f32) return load(reinterpret_cast<const float*>(panel) + at);
  if constexpr (S == Storage::f16) return load_f16(reinterpret_cast<const std::uint16_t*>(panel) + at);
  if constexpr (S == Storage::bf16) return load_bf16(reinterpret_cast<const std::uint16_t*>(panel) + at);
}

// V vectors of 16 outputs for R rows: acc = fma(x[k], w[n][k], acc) over k ascending, from +0.
template <Storage S, int V>
struct FloatTile {
  const PackedWeight& w;
  const float* x;
  const float* residual;
  float* y;
  int vector;  // the first of V; every panel has two

  template <int R>
  __attribute__((noinline)) void run(int row, int, int) const {
    const std::size_t columns = static_cast<std::size_t>(w.columns);
    const std::uint8_t* weights = w.data + vector / 2 * w.panel_bytes;
    const std::size_t half = static_cast<std::size_t>(vector % 2) * 16;  // only if V is 1
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
        column[v] = load_weights<S>(weights + v / 2 * w.panel_bytes, k * kPanelRows + half + v % 2 * 16);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) {
        FOREBAY_UNROLL
        for (int v = 0; v < V; ++v) acc[v][r] = fma(set1(in[r * columns + k]), column[v], acc[v][r]);
      }
    }
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      FOREBAY_UNROLL
      for (int v = 0; v < V; ++v)
        panel_output(w, (vector + v) / 2, residual, y).put(row + r, (vector + v) % 2, acc[v][r]);
    }
  }
};

// The vectors from `vector` up that make whole tiles; returns the first one left.
template <Storage S, int V>
int run_vectors(const PackedWeight& w, const float* x, int rows, int vector, int end, const float* residual, float* y) {
  for (; vector + V <= end; vector += V) run_tiles<kFmaChains / V>(FloatTile<S, V>{w, x, residual, y, vector}, rows);
  return vector;
}

// Few rows take many vectors, since that is what keeps enough chains going. Weights that must be widened take one: a
// tile does that once for all its rows.
template <Storage S>
void run_panels(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end, const float* residual,
                float* y) {
  int vector = 2 * panel_begin;
  const int end = 2 * panel_end;
  if (4 * rows <= kFmaChains) vector = run_vectors<S, 4>(w, x, rows, vector, end, residual, y);
  if (2 * rows <= kFmaChains || (S == Storage::f32 && kTileVectors == 2))
    vector = run_vectors<S, 2>(w, x, rows, vector, end, residual, y);
  run_vectors<S, 1>(w, x, rows, vector, end, residual, y);
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
