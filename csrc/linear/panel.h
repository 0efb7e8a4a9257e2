// One panel of a quantized linear at a time, for linear_quantized and linear_gated.
#pragma once

#include "linear/tiles.h"

namespace forebay::FOREBAY_ISA {

// The products of `rows` rows of x with one panel. `next` is fetched meanwhile: where another panel lies, or null.
void multiply_panel(const PackedWeight& w, int panel, const QuantizedRows& x, int rows, const PanelOutput& out,
                    const std::uint8_t* next);

inline const std::uint8_t* panel_data(const PackedWeight& w, int panel) {
  return w.data + static_cast<std::size_t>(panel) * w.panel_bytes;
}

}  // namespace forebay::FOREBAY_ISA
