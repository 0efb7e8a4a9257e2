#include "linear/tiles.h"

namespace forebay::FOREBAY_ISA {

namespace {

template <Storage S>
inline F32x16 load_weights(const std::uint8_t* panel, std::size_t k) {
  if constexpr (S == Storage::f32) return load(reinterpret_cast<const float*>(panel) + k * 16);
  if constexpr (S == Storage::f16) return load_f16(reinterpret_cast<const std::uint16_t*>(panel) + k * 16);
  if constexpr (S == Storage::bf16) return load_bf16(reinterpret_cast<const std::uint16_t*>(panel) + k * 16);
}

// One panel (16 outputs) for R rows: acc = fma(x[k], w[n][k], acc) over k ascending, from +0. Lanes are outputs.
template <Storage S>
struct PanelKernel {
  const PackedWeight& w;
  const float* x;
  const float* bias;
  float* y;
  int panel;

  template <int R>
  void run(int row) const {
    const std::size_t columns = static_cast<std::size_t>(w.columns);
    const std::uint8_t* weights = w.data + panel * w.panel_bytes;
    const float* in = x + row * columns;
    F32x16 acc[R];
    for (int r = 0; r < R; ++r) acc[r] = zero();
    for (std::size_t k = 0; k < columns; ++k) {
      const F32x16 column = load_weights<S>(weights, k);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) acc[r] = fma(set1(in[r * columns + k]), column, acc[r]);
    }
    for (int r = 0; r < R; ++r)
      store_outputs(w, panel, acc[r], bias, y + static_cast<std::size_t>(row + r) * static_cast<std::size_t>(w.rows));
  }
};

template <Storage S>
void run_panels(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end, const float* bias,
                float* y) {
  for (int panel = panel_begin; panel < panel_end; ++panel)
    run_tiles<kRowTile>(PanelKernel<S>{w, x, bias, y, panel}, 0, rows);
}

}  // namespace

void linear_float(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end, const float* bias,
                  float* y) {
  const auto run = w.storage == Storage::f32   ? run_panels<Storage::f32>
                   : w.storage == Storage::f16 ? run_panels<Storage::f16>
                                               : run_panels<Storage::bf16>;
  run(w, x, rows, panel_begin, panel_end, bias, y);
}

}  // namespace forebay::FOREBAY_ISA
