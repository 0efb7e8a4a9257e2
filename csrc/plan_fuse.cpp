// Fusion: passes over the recorded program that give the one that runs. Fused equals unfused bit for bit; a trace runs
// the program as recorded.
#include "plan.h"

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

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
  const bool is_sole = !is_output(value) && uses.reads[size(value)] == 1 && maker >= 0 && ops_[size(maker)].product.w;
  return is_sole ? maker : -1;
}

// gate and up of one input, act_mul, and the int8 form that is all there is made of it: one op that no thread waits in.
void Plan::fuse_gated(std::size_t at, const Uses& uses, std::vector<char>& gone) {
  const Op& product = ops_[at];
  const int gate = sole_linear(product.reads[0], uses), up = sole_linear(product.reads[1], uses);
  if (gate < 0 || up < 0 || gate == up || uses.reads[size(product.output)] != 1 || is_output(product.output)) return;
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

}  // namespace forebay
