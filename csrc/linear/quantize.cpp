#include "linear/quantize_group.h"

namespace forebay::FOREBAY_ISA {

void quantize(const float* x, int row_begin, int row_end, const QuantizedRows& out) {
  const std::size_t groups = static_cast<std::size_t>(out.columns / kQuantGroup);
  for (std::size_t group = row_begin * groups; group < row_end * groups; ++group)
    quantize_group(load(x + group * 32), load(x + group * 32 + 16), out.groups + group);
}

}  // namespace forebay::FOREBAY_ISA
