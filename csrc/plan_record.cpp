#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "plan.h"

namespace forebay {

namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

std::string text(long long n) { return std::to_string(n); }

std::size_t size(int n) { return static_cast<std::size_t>(n); }

}  // namespace

const Plan::ValueInfo& Plan::info(Value value) const {
  if (value < 0 || size(value) >= values_.size()) fail("value " + text(value) + " is not one of this plan's");
  return values_[size(value)];
}

Plan::Value Plan::new_value(bool per_logit_row, int width, std::size_t row_bytes) {
  ValueInfo value{per_logit_row, width, row_bytes};
  values_.push_back(value);
  return static_cast<Value>(values_.size()) - 1;
}

Plan::Op& Plan::record(const char* name, std::vector<Value> reads, Value output) {
  if (!buffers_.empty()) fail(std::string(name) + ": the plan is finished");
  if (segments_.empty()) segment("forward");
  Op op;
  op.name = name;
  op.index = static_cast<int>(ops_.size());
  op.segment = segments_.size() - 1;
  op.per_logit_row = info(output >= 0 ? output : reads[0]).per_logit_row;
  op.reads = std::move(reads);
  op.output = output;
  op.traced = output >= 0;
  return ops_.emplace_back(std::move(op));
}

Plan::Value Plan::record_by_rows(const char* name, std::vector<Value> reads, Value output, RowsWork work) {
  record(name, std::move(reads), output).rows_work = std::move(work);
  return output;
}

Plan::Value Plan::record_shared(const char* name, std::vector<Value> reads, Value output, Work work) {
  record(name, std::move(reads), output).work = std::move(work);
  return output;
}

void Plan::segment(const std::string& name) {
  segments_.emplace_back();
  segments_.back().name = name;
}

Plan::Value Plan::embed(const StoredWeight& weight) {
  vocab_ = std::min(vocab_, weight.rows);
  const Value out = new_value(false, weight.columns, size(weight.columns) * sizeof(float));
  return record_by_rows("embed", {}, out, [this, out, weight](const Step& step, Part part) {
    for (int row = part.begin; row < part.end; ++row) {
      const std::uint8_t* stored = weight.data + size(step.token[row]) * weight.format.row_bytes(weight.columns);
      dequantize_row(weight.format, stored, weight.columns, data(out) + size(row) * size(weight.columns));
    }
  });
}

QuantizedRows Plan::quantized_rows(Value value) const {
  return {data<QuantizedGroup>(value), values_[size(value)].width};
}

// The int8 form of x, recorded once and shared by every linear that reads x.
Plan::Value Plan::quantized(Value x) {
  const auto found = quantized_.find(x);
  if (found != quantized_.end()) return found->second;
  const ValueInfo v = info(x);
  const Value out = new_value(v.per_logit_row, v.width, size(v.width / kQuantGroup) * sizeof(QuantizedGroup));
  quantized_[x] = out;
  record_by_rows("quantize", {x}, out, [this, x, out](const Step&, Part part) {
    kernels_.quantize(data(x), part.begin, part.end, quantized_rows(out));
  });
  ops_.back().traced = false;
  return out;
}

Plan::Value Plan::linear(Value x, const StoredWeight& weight, const float* bias) {
  const ValueInfo in = info(x);
  if (in.width != weight.columns)
    fail("linear: x has width " + text(in.width) + ", the weight " + text(weight.columns) + " columns");
  if (weight.columns % std::max(weight.format.block_size, 1))
    fail("linear: " + text(weight.columns) + " columns are not a multiple of " + weight.format.name + "'s block");
  weights_.push_back(pack(weight.format, weight.data, weight.rows, weight.columns, pool_, weight_memory_));
  PackedWeight* w = &weights_.back();
  if (bias) w->bias = vectors_.emplace_back(bias, bias + weight.rows).data();
  const Value input = weight.format.quantized() ? quantized(x) : x;
  const Value out = new_value(in.per_logit_row, weight.rows, size(weight.rows) * sizeof(float));
  record_shared("linear", {input}, out, {});
  make_product(ops_.back(), {w, nullptr, input, -1, out, Activation::silu});
  return out;
}

Plan::Value Plan::rms_norm(Value x, const float* weight, int width, float eps) {
  const ValueInfo in = info(x);
  if (width < 1 || in.width % width)
    fail("rms_norm: width " + text(in.width) + " is not a multiple of " + text(width) + " weights");
  const float* w = vectors_.emplace_back(weight, weight + width).data();
  const Value out = new_value(in.per_logit_row, in.width, in.row_bytes);
  return record_by_rows("rms_norm", {x}, out, [this, x, out, w, width, eps](const Step&, Part part) {
    const ValueInfo& v = values_[size(out)];
    const std::size_t first = size(part.begin) * size(v.width),
                      groups = size(part.end - part.begin) * size(v.width / width);
    kernels_.rms_norm(data(x) + first, w, data(out) + first, groups, width, eps);
  });
}

Plan::Value Plan::rope(Value x, int head_dim, const float* cos, const float* sin, int positions, int rotary_dim) {
  const ValueInfo in = info(x);
  if (in.per_logit_row || head_dim < 1 || in.width % head_dim)
    fail("rope: width " + text(in.width) + " is not heads of " + text(head_dim));
  if (rotary_dim > head_dim)
    fail("rope: the table turns " + text(rotary_dim) + " of " + text(head_dim) + " dimensions");
  if (positions < limits_.max_model_len)
    fail("rope: the table has " + text(positions) + " positions, the plan needs " + text(limits_.max_model_len));
  const Value out = new_value(false, in.width, in.row_bytes);
  return record_by_rows("rope", {x}, out, [=](const Step& step, Part part) {
    const std::size_t width = size(values_[size(out)].width), half = size(rotary_dim / 2);
    for (std::size_t row = size(part.begin); row < size(part.end); ++row) {
      const std::size_t turn = size(step.position[row]) * half;
      kernels_.rope(data(x) + row * width, data(out) + row * width, static_cast<int>(width) / head_dim, head_dim,
                    cos + turn, sin + turn, rotary_dim);
    }
  });
}

Plan::LayerCache Plan::cache_of(int layer) const {
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    const KVGroup& group = groups_[number];
    const std::size_t bytes = kv_layer_bytes(group, block_size_, limits_.num_blocks);
    for (std::size_t i = 0; i < group.layers.size(); ++i)
      if (group.layers[i] == layer) {
        std::uint8_t* base = caches_[number].data() + i * bytes;
        return {&group,
                number,
                {base, base + bytes / 2, group.format, group.kv_heads, group.head_dim, block_size_,
                 kv_head_bytes(group.format, group.head_dim, block_size_)}};
      }
  }
  fail("layer " + text(layer) + " is in no KV group");
}

void Plan::kv_write(int layer, Value k, Value v) {
  const LayerCache cache = cache_of(layer);
  const int width = cache.group->kv_heads * cache.group->head_dim;
  if (info(k).width != width || info(v).width != width || info(k).per_logit_row || info(v).per_logit_row)
    fail("kv_write: k and v must be step rows of width " + text(width));
  record_by_rows("kv_write", {k, v}, -1, [this, k, v, cache, width](const Step& step, Part part) {
    for (int row = part.begin; row < part.end; ++row) {
      const int slot = step.slots[cache.number][row];
      const std::size_t at = size(row) * size(width);
      if (slot >= 0) kernels_.kv_write(cache.layer, data(k) + at, data(v) + at, slot);
    }
  });
  ops_.back().writes_cache = true;
}

Plan::Value Plan::attention(Value q, int layer, float scale) {
  const LayerCache cache = cache_of(layer);
  const KVGroup& group = *cache.group;
  const ValueInfo in = info(q);
  if (in.per_logit_row || in.width % (group.head_dim * group.kv_heads))
    fail("attention: q of width " + text(in.width) + " is not a multiple of " + text(group.kv_heads) + " heads of " +
         text(group.head_dim));
  const int heads = in.width / group.head_dim, per_kv_head = heads / group.kv_heads;
  int& known = heads_per_kv_head_[cache.number];
  if (known && known != per_kv_head)
    fail("attention: layers of one KV group must have as many query heads, got " + text(known * group.kv_heads) +
         " and " + text(heads));
  known = per_kv_head;
  scratch_floats_ = std::max(scratch_floats_, attention_scratch(group.head_dim, per_kv_head));
  state_floats_ = std::max(state_floats_, attention_state(group.head_dim, per_kv_head));
  const Value out = new_value(false, in.width, in.row_bytes);
  const auto args = [this, q, out, cache, heads, scale] {
    return AttentionArgs{data(q), data(out), cache.layer, heads, cache.group->window, scale};
  };
  record_shared("attention", {q}, out,
                [this, args, cache](const Step& step, int thread) { attend(args(), cache, step, thread); });
  ops_.back().reads_cache = true;
  ops_.back().traced = false;  // its rows are whole only after the next op
  return record_by_rows("attention", {out}, out,
                        [this, args, cache](const Step& step, Part part) { join_cuts(args(), cache, step, part); });
}

// `map(first, count, out)` over the flat values of each thread's rows.
Plan::Value Plan::elementwise(const char* name, std::vector<Value> inputs,
                              std::function<void(std::size_t, std::size_t, float*)> map) {
  const ValueInfo in = info(inputs[0]);
  for (const Value other : inputs)
    if (info(other).width != in.width || info(other).per_logit_row != in.per_logit_row)
      fail(std::string(name) + ": shapes differ: width " + text(in.width) + " and " + text(info(other).width));
  const Value out = new_value(in.per_logit_row, in.width, in.row_bytes);
  return record_by_rows(name, std::move(inputs), out, [this, out, map](const Step&, Part part) {
    const ValueInfo& v = values_[size(out)];
    const std::size_t first = size(part.begin) * size(v.width);
    map(first, size(part.end - part.begin) * size(v.width), data(out) + first);
  });
}

Plan::Value Plan::act_mul(Value gate, Value up, const std::string& activation) {
  if (activation != "silu" && activation != "gelu_tanh")
    fail("act_mul: activation must be \"silu\" or \"gelu_tanh\", got \"" + activation + "\"");
  const Activation kind = activation == "silu" ? Activation::silu : Activation::gelu_tanh;
  elementwise("act_mul", {gate, up}, [this, gate, up, kind](std::size_t first, std::size_t count, float* out) {
    kernels_.act_mul(kind, data(gate) + first, data(up) + first, out, count);
  });
  ops_.back().activation = kind;
  return ops_.back().output;
}

Plan::Value Plan::add(Value x, Value y) {
  return elementwise("add", {x, y}, [this, x, y](std::size_t first, std::size_t count, float* out) {
    kernels_.add(data(x) + first, data(y) + first, out, count);
  });
}

Plan::Value Plan::scale(Value x, float factor) {
  return elementwise("scale", {x}, [this, x, factor](std::size_t first, std::size_t count, float* out) {
    kernels_.scale(data(x) + first, factor, out, count);
  });
}

Plan::Value Plan::softcap(Value x, float cap) {
  return elementwise("softcap", {x}, [this, x, cap](std::size_t first, std::size_t count, float* out) {
    kernels_.softcap(data(x) + first, cap, out, count);
  });
}

Plan::Value Plan::rows(Value x) {
  const ValueInfo in = info(x);
  if (in.per_logit_row) fail("rows: x is already the step's logit rows");
  const Value out = new_value(true, in.width, in.row_bytes);
  return record_shared("rows", {x}, out, [this, x, out](const Step& step, int thread) {
    const Part part = part_of(step.logit_rows, thread, pool_.size());
    const std::size_t width = size(values_[size(out)].width);
    for (std::size_t row = size(part.begin); row < size(part.end); ++row)
      std::memcpy(data(out) + row * width, data(x) + size(step.rows[row]) * width, width * sizeof(float));
  });
}

void Plan::hidden(Value x) {
  if (!info(x).per_logit_row) fail("hidden: x must be the step's logit rows; call rows() first");
  if (hidden_ >= 0) fail("hidden: already marked");
  hidden_ = x;
}

void Plan::logits(Value x) {
  if (!info(x).per_logit_row) fail("logits: x must be the step's logit rows; call rows() first");
  if (logits_ >= 0) fail("logits: already marked");
  logits_ = x;
}

}  // namespace forebay
