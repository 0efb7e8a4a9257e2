#include "linear/panel.h"
#include "linear/quantize_group.h"

namespace forebay::FOREBAY_ISA {

namespace {

constexpr int kRows = 48;  // of gate and up that are kept as floats
constexpr int kBlock = kRows * kPanelRows;

PanelOutput block_output(const PackedWeight& w, int panel, float* block) {
  return {block, nullptr, w.bias ? w.bias + panel * kPanelRows : nullptr, kPanelRows, kPanelRows};
}

}  // namespace

void linear_gated(Activation activation, const PackedWeight& gate, const PackedWeight& up, const QuantizedRows& x,
                  int rows, int panel_begin, int panel_end, const QuantizedRows& out) {
  const std::size_t groups = static_cast<std::size_t>(x.columns / kQuantGroup);
  const std::size_t panels = static_cast<std::size_t>(out.columns / kPanelRows);
  float gates[kBlock], ups[kBlock];
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    for (int first = 0; first < rows; first += kRows) {
      const int count = least(kRows, rows - first);
      const QuantizedRows block = {x.groups + static_cast<std::size_t>(first) * groups, x.columns};
      const bool fetch_gate = first == 0 && panel + 1 < panel_end;
      multiply_panel(gate, panel, block, count, block_output(gate, panel, gates),
                     first == 0 ? panel_data(up, panel) : nullptr);
      multiply_panel(up, panel, block, count, block_output(up, panel, ups),
                     fetch_gate ? panel_data(gate, panel + 1) : nullptr);
      act_mul(activation, gates, ups, gates, static_cast<std::size_t>(count) * kPanelRows);
      for (int row = 0; row < count; ++row) {
        const float* x32 = gates + row * kPanelRows;
        quantize_group(load(x32), load(x32 + 16), out.groups + static_cast<std::size_t>(first + row) * panels + panel);
      }
    }
  }
}

}  // namespace forebay::FOREBAY_ISA
