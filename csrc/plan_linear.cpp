// How threads share a linear: its outputs, or in steps of many rows the rows.
#include "plan.h"

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

int panels_of(const PackedWeight& w) { return (w.rows + kPanelRows - 1) / kPanelRows; }

}  // namespace

// `op` as a product whose outputs the threads share.
void Plan::make_product(Op& op, const Product& product) {
  op.product = product;
  op.work = [this, product](const Step& step, int thread) {
    multiply(product, {0, row_count(values_[size(product.y)], step)},
             part_of(panels_of(*product.w), thread, pool_.size()));
  };
}

void Plan::multiply(const Product& p, Part rows, Part panels) {
  const std::size_t first = size(rows.begin), columns = size(p.w->columns), width = size(p.w->rows);
  const int count = rows.end - rows.begin;
  const auto groups_from = [&](Value value) {
    QuantizedRows from = quantized_rows(value);
    from.groups += first * size(from.columns / kQuantGroup);
    return from;
  };
  if (p.up)
    return kernels_.linear_gated(p.activation, *p.w, *p.up, groups_from(p.x), count, panels.begin, panels.end,
                                 groups_from(p.y));
  const float* residual = p.residual < 0 ? nullptr : data(p.residual) + first * width;
  float* y = data(p.y) + first * width;
  if (is_float(p.w->storage))
    kernels_.linear_float(*p.w, data(p.x) + first * columns, count, panels.begin, panels.end, residual, y);
  else
    kernels_.linear_quantized(*p.w, groups_from(p.x), count, panels.begin, panels.end, residual, y);
}

// Of many rows each thread takes its own through whole layers: rows stay in its caches, and only attention makes it
// wait. Every thread reads all weights, which many rows pay for.
void Plan::share_rows() {
  by_rows_ = fused_;
  for (Op& op : by_rows_) {
    if (!op.product.w || op.per_logit_row) continue;
    op.rows_work = [this, product = op.product](const Step&, Part rows) {
      multiply(product, rows, {0, panels_of(*product.w)});
    };
    op.at_once = true;
    op.work = nullptr;
  }
}

}  // namespace forebay
