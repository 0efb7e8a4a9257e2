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
  values_.push_back({per_logit_row, width, row_bytes, -1, -1});
  return static_cast<Value>(values_.size()) - 1;
}

Plan::Value Plan::record(const char* name, std::vector<Value> reads, Value output, bool by_rows, Work work) {
  if (!buffers_.empty()) fail(std::string(name) + ": the plan is finished");
  if (segments_.empty()) segment("forward");
  ops_.push_back({name, segments_.size() - 1, std::move(reads), output, by_rows, false, false, true, std::move(work)});
  return output;
}

void Plan::segment(const std::string& name) {
  segments_.emplace_back();
  segments_.back().name = name;
}

Plan::Value Plan::embed(const StoredWeight& weight) {
  vocab_ = std::min(vocab_, weight.rows);
  const Value out = new_value(false, weight.columns, size(weight.columns) * sizeof(float));
  return record("embed", {}, out, true, [this, out, weight](const Step& step, int thread) {
    const Part part = part_of(step.tokens, thread, pool_.size());
    for (int row = part.begin; row < part.end; ++row) {
      const std::uint8_t* stored = weight.data + size(step.token[row]) * weight.format.row_bytes(weight.columns);
      dequantize_row(weight.format, stored, weight.columns, data(out) + size(row) * size(weight.columns));
    }
  });
}

QuantizedRows Plan::quantized_rows(Value value) const {
  const ValueInfo& v = values_[size(value)];
  const std::size_t most = size(v.per_logit_row ? limits_.max_logit_rows : limits_.max_tokens), columns = size(v.width);
  std::uint8_t* base = data<std::uint8_t>(value);
  return {reinterpret_cast<std::int8_t*>(base), reinterpret_cast<float*>(base + most * columns),
          reinterpret_cast<std::int32_t*>(base + most * (columns + columns / 8)), v.width};
}

// The int8 form of x, recorded once and shared by every linear that reads x.
Plan::Value Plan::quantized(Value x) {
  const auto found = quantized_.find(x);
  if (found != quantized_.end()) return found->second;
  const ValueInfo v = info(x);
  const Value out = new_value(v.per_logit_row, v.width, size(v.width) + size(v.width) / 8 + size(v.width) / 4);
  quantized_[x] = out;
  return record("quantize", {x}, out, true, [this, x, out](const Step& step, int thread) {
    const Part part = part_of(row_count(values_[size(x)], step), thread, pool_.size());
    kernels_.quantize(data(x), part.begin, part.end, quantized_rows(out));
  });
}

Plan::Value Plan::linear(Value x, const StoredWeight& weight, const float* bias) {
  const ValueInfo in = info(x);
  if (in.width != weight.columns)
    fail("linear: x has width " + text(in.width) + ", the weight " + text(weight.columns) + " columns");
  if (weight.columns % std::max(weight.format.block_size, 1))
    fail("linear: " + text(weight.columns) + " columns are not a multiple of " + weight.format.name + "'s block");
  weights_.push_back(pack(weight.format, weight.data, weight.rows, weight.columns, pool_));
  const PackedWeight* w = &weights_.back().view;
  const float* b = bias ? vectors_.emplace_back(bias, bias + weight.rows).data() : nullptr;
  const bool is_quantized = weight.format.quantized();
  const Value input = is_quantized ? quantized(x) : x;
  const Value out = new_value(in.per_logit_row, weight.rows, size(weight.rows) * sizeof(float));
  return record("linear", {input}, out, false, [this, input, out, w, b, is_quantized](const Step& step, int thread) {
    const Part part = part_of((w->rows + kLanes - 1) / kLanes, thread, pool_.size());
    const int rows = row_count(values_[size(out)], step);
    if (is_quantized)
      kernels_.linear_quantized(*w, quantized_rows(input), rows, part.begin, part.end, b, data(out));
    else
      kernels_.linear_float(*w, data(input), rows, part.begin, part.end, b, data(out));
  });
}

Plan::Value Plan::rms_norm(Value x, const float* weight, int width, float eps) {
  const ValueInfo in = info(x);
  if (width < 1 || in.width % width)
    fail("rms_norm: width " + text(in.width) + " is not a multiple of " + text(width) + " weights");
  const float* w = vectors_.emplace_back(weight, weight + width).data();
  const Value out = new_value(in.per_logit_row, in.width, in.row_bytes);
  return record("rms_norm", {x}, out, true, [this, x, out, w, width, eps](const Step& step, int thread) {
    const ValueInfo& v = values_[size(out)];
    const Part part = part_of(row_count(v, step), thread, pool_.size());
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
  return record("rope", {x}, out, true, [=](const Step& step, int thread) {
    const std::size_t width = size(values_[size(out)].width), half = size(rotary_dim / 2);
    const Part part = part_of(step.tokens, thread, pool_.size());
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
    const std::size_t bytes = size(limits_.num_blocks) * size(block_size_) * size(group.kv_heads) *
                              size(group.head_dim) * (group.is_f16 ? 2 : 4);
    for (std::size_t i = 0; i < group.layers.size(); ++i)
      if (group.layers[i] == layer) {
        std::uint8_t* base = caches_[number].data() + 2 * i * bytes;
        return {&group, number, base, base + bytes};
      }
  }
  fail("layer " + text(layer) + " is in no KV group");
}

void Plan::kv_write(int layer, Value k, Value v) {
  const LayerCache cache = cache_of(layer);
  const int width = cache.group->kv_heads * cache.group->head_dim;
  if (info(k).width != width || info(v).width != width || info(k).per_logit_row || info(v).per_logit_row)
    fail("kv_write: k and v must be step rows of width " + text(width));
  record("kv_write", {k, v}, -1, true, [this, k, v, cache, width](const Step& step, int thread) {
    const Part part = part_of(step.tokens, thread, pool_.size());
    for (int row = part.begin; row < part.end; ++row) {
      const int slot = step.slots[cache.number][row];
      if (slot < 0) continue;
      const std::size_t at = size(slot) * size(width) * (cache.group->is_f16 ? 2 : 4);
      for (const auto& [value, to] : {std::pair{k, cache.k + at}, std::pair{v, cache.v + at}}) {
        const float* from = data(value) + size(row) * size(width);
        if (cache.group->is_f16)
          kernels_.to_f16(from, reinterpret_cast<std::uint16_t*>(to), width);
        else
          std::memcpy(to, from, size(width) * sizeof(float));
      }
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
  const int heads = in.width / group.head_dim;
  scratch_floats_ = std::max(scratch_floats_, attention_scratch(group.head_dim, heads / group.kv_heads));
  const Value out = new_value(false, in.width, in.row_bytes);
  record("attention", {q}, out, false, [this, q, out, cache, heads, scale](const Step& step, int thread) {
    const KVGroup& g = *cache.group;
    const AttentionArgs args{data(q),    data(out),  cache.k,     cache.v,  g.is_f16, heads,
                             g.kv_heads, g.head_dim, block_size_, g.window, scale};
    const Step::Table& table = step.tables[cache.number];
    const std::size_t items = tiles_.size() * size(g.kv_heads);
    for (std::size_t item = size(thread); item < items; item += size(pool_.size())) {
      const Run& run = tiles_[item / size(g.kv_heads)];
      const AttentionTile tile{run.row_begin, run.row_end, run.position,
                               table.data + size(run.request) * size(table.columns)};
      kernels_.attention(args, tile, static_cast<int>(item % size(g.kv_heads)),
                         reinterpret_cast<float*>(scratch_[size(thread)].data()));
    }
  });
  ops_.back().reads_cache = true;
  return out;
}

// `map(first, count, out)` over the flat values of each thread's rows.
Plan::Value Plan::elementwise(const char* name, std::vector<Value> inputs,
                              std::function<void(std::size_t, std::size_t, float*)> map) {
  const ValueInfo in = info(inputs[0]);
  for (const Value other : inputs)
    if (info(other).width != in.width || info(other).per_logit_row != in.per_logit_row)
      fail(std::string(name) + ": shapes differ: width " + text(in.width) + " and " + text(info(other).width));
  const Value out = new_value(in.per_logit_row, in.width, in.row_bytes);
  return record(name, std::move(inputs), out, true, [this, out, map](const Step& step, int thread) {
    const ValueInfo& v = values_[size(out)];
    const Part part = part_of(row_count(v, step), thread, pool_.size());
    const std::size_t first = size(part.begin) * size(v.width);
    map(first, size(part.end - part.begin) * size(v.width), data(out) + first);
  });
}

Plan::Value Plan::act_mul(Value gate, Value up, const std::string& activation) {
  if (activation != "silu" && activation != "gelu_tanh")
    fail("act_mul: activation must be \"silu\" or \"gelu_tanh\", got \"" + activation + "\"");
  const Activation kind = activation == "silu" ? Activation::silu : Activation::gelu_tanh;
  return elementwise("act_mul", {gate, up}, [this, gate, up, kind](std::size_t first, std::size_t count, float* out) {
    kernels_.act_mul(kind, data(gate) + first, data(up) + first, out, count);
  });
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
  return record("rows", {x}, out, false, [this, x, out](const Step& step, int thread) {
    const Part part = part_of(step.logit_rows, thread, pool_.size());
    const std::size_t width = size(values_[size(out)].width);
    for (std::size_t row = size(part.begin); row < size(part.end); ++row)
      std::memcpy(data(out) + row * width, data(x) + size(step.rows[row]) * width, width * sizeof(float));
  });
}

void Plan::logits(Value x) {
  if (!info(x).per_logit_row) fail("logits: x must be the step's logit rows; call rows() first");
  if (logits_ >= 0) fail("logits: already marked");
  logits_ = x;
}

}  // namespace forebay
