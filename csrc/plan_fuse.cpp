// Fusion: passes over the recorded program that give the one that runs. Fused equals unfused bit for bit; a trace runs
// the program as recorded.
#include "plan.h"

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

int panels_of(const PackedWeight& w) { return (w.rows + kPanelRows - 1) / kPanelRows; }

}  // namespace

// Where a value is made, who reads it, and how often.
struct Plan::Uses {
  explicit Uses(const std::vector<Op>& program, std::size_t values)
      : maker(values, -1), reader(values, -1), reads(values) {
    for (std::size_t i = 0; i < program.size(); ++i) {
      for (const Value value : program[i].reads) {
        reader[size(value)] = static_cast<int>(i);
        ++reads[size(value)];
      }
      if (program[i].output >= 0 && maker[size(program[i].output)] < 0)
        maker[size(program[i].output)] = static_cast<int>(i);
    }
  }
  std::vector<int> maker, reader, reads;
};

void Plan::fuse() {
  const Uses uses(ops_, values_.size());
  std::vector<char> gone(ops_.size(), 0);
  fused_ = ops_;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].name == "act_mul") fuse_gated(i, uses, gone);
    if (ops_[i].name == "add") fuse_residual(i, uses, gone);
  }
  std::vector<Op> kept;
  for (std::size_t i = 0; i < fused_.size(); ++i)
    if (!gone[i]) kept.push_back(std::move(fused_[i]));
  fused_ = std::move(kept);
}

// The linear that makes `value` for one reader alone, or -1.
int Plan::sole_linear(Value value, const Uses& uses) const {
  const int maker = uses.maker[size(value)];
  const bool is_sole = value != logits_ && uses.reads[size(value)] == 1 && maker >= 0 && ops_[size(maker)].product.w;
  return is_sole ? maker : -1;
}

// gate and up of one input, act_mul, and the int8 form that is all there is made of it: one op that no thread waits in.
void Plan::fuse_gated(std::size_t at, const Uses& uses, std::vector<char>& gone) {
  const Op& product = ops_[at];
  const int gate = sole_linear(product.reads[0], uses), up = sole_linear(product.reads[1], uses);
  if (gate < 0 || up < 0 || gate == up || uses.reads[size(product.output)] != 1 || product.output == logits_) return;
  const Op &one = ops_[size(gate)], &other = ops_[size(up)];
  const std::size_t quantize = size(uses.reader[size(product.output)]);
  if (ops_[quantize].name != "quantize" || one.reads != other.reads || is_float(one.product.w->storage) ||
      is_float(other.product.w->storage) || one.product.w->rows % kPanelRows)
    return;
  Op& fused = fused_[quantize];
  fused.name = "linear_gated";
  fused.reads = one.reads;
  fused.rows_work = nullptr;
  make_product(fused, {one.product.w, other.product.w, one.reads[0], -1, fused.output, product.activation});
  gone[size(gate)] = gone[size(up)] = gone[at] = 1;
}

// linear then add: the linear adds to the other operand as it stores.
void Plan::fuse_residual(std::size_t at, const Uses& uses, std::vector<char>& gone) {
  const Op& sum = ops_[at];
  const int linear = sole_linear(sum.reads[1], uses);
  if (linear < 0 || sum.reads[0] == sum.reads[1] || uses.maker[size(sum.reads[0])] >= linear) return;
  Op& fused = fused_[size(linear)];
  fused.reads.push_back(sum.reads[0]);
  fused.output = sum.output;
  make_product(fused, {fused.product.w, nullptr, fused.reads[0], sum.reads[0], sum.output, Activation::silu});
  gone[at] = 1;
}

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
