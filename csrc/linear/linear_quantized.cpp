#include "linear/dot_tile.h"
#include "linear/panel.h"

namespace forebay::FOREBAY_ISA {

namespace {

template <Storage S>
void multiply_stored(const std::uint8_t* panel, const QuantizedRows& x, int rows, const PanelOutput& out,
                     const std::uint8_t* next) {
  using W = Weights<S>;
  constexpr int kRows = W::Dot::kRows;
  if (rows == 1 && kRows > 1) return DotTile<W, 2>{panel, x, out, next, 0}.template run<1>(0, 0, 1);
  for (int vector = 0; vector < 2; vector += kTileVectors)
    run_tiles<kRows>(DotTile<W, kTileVectors>{panel, x, out, vector ? nullptr : next, vector}, rows);
}

auto kernel_of(Storage storage) {
  switch (storage) {
    case Storage::u4:
      return multiply_stored<Storage::u4>;
    case Storage::u4_min:
      return multiply_stored<Storage::u4_min>;
    case Storage::u4_k:
      return multiply_stored<Storage::u4_k>;
    case Storage::u8_min:
      return multiply_stored<Storage::u8_min>;
    case Storage::u8_k:
      return multiply_stored<Storage::u8_k>;
    case Storage::u8_halves:
      return multiply_stored<Storage::u8_halves>;
    default:
      return multiply_stored<Storage::u8>;
  }
}

}  // namespace

void multiply_panel(const PackedWeight& w, int panel, const QuantizedRows& x, int rows, const PanelOutput& out,
                    const std::uint8_t* next) {
  kernel_of(w.storage)(panel_data(w, panel), x, rows, out, next);
}

void linear_quantized(const PackedWeight& w, const QuantizedRows& x, int rows, int panel_begin, int panel_end,
                      const float* residual, float* y) {
  for (int panel = panel_begin; panel < panel_end; ++panel)
    multiply_panel(w, panel, x, rows, panel_output(w, panel, residual, y),
                   panel + 1 < panel_end ? panel_data(w, panel + 1) : nullptr);
}

}  // namespace forebay::FOREBAY_ISA
