#include "plan.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

// FNV-1a over the 32-bit words of a row.
std::uint64_t checksum(const std::uint8_t* row, std::size_t bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (std::size_t i = 0; i < bytes; i += 4) {
    std::uint32_t word;
    std::memcpy(&word, row + i, 4);
    hash = (hash ^ word) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace

Plan::Plan(const Kernels& kernels, int threads, const PlanLimits& limits, int block_size, std::vector<KVGroup> groups)
    : kernels_(kernels), limits_(limits), block_size_(block_size), groups_(std::move(groups)), pool_(threads) {
  if (block_size < 1) throw std::invalid_argument("block_size must be at least 1, got " + std::to_string(block_size));
  for (const KVGroup& group : groups_) {
    if (group.head_dim < 1 || group.kv_heads < 1)
      throw std::invalid_argument("a KV group needs at least 1 head and dimension");
    const std::size_t row = size(group.kv_heads) * size(group.head_dim) * (group.is_f16 ? 2 : 4);
    caches_.emplace_back(2 * group.layers.size() * size(limits.num_blocks) * size(block_size) * row);
  }
}

int Plan::vocab() const { return logits_ < 0 ? 0 : values_[size(logits_)].width; }

std::size_t Plan::bytes_of(const ValueInfo& value) const {
  return size(value.per_logit_row ? limits_.max_logit_rows : limits_.max_tokens) * value.row_bytes;
}

int Plan::row_count(const ValueInfo& value, const Step& step) const {
  return value.per_logit_row ? step.logit_rows : step.tokens;
}

void Plan::finish() {
  if (logits_ < 0) throw std::invalid_argument("the forward pass marked no logits");
  place_buffers();
  place_barriers();
  for (const std::size_t bytes : buffer_bytes_) buffers_.emplace_back(bytes);
  for (int thread = 0; thread < pool_.size(); ++thread) {
    scratch_.emplace_back(scratch_floats_ * sizeof(float));
    samplers_.emplace_back(kernels_, vocab());
  }
}

// The smallest free buffer that fits, else the largest free one grown, else a new one.
int Plan::take_buffer(std::vector<char>& busy, std::size_t bytes) {
  int best = -1;
  for (std::size_t i = 0; i < buffer_bytes_.size(); ++i) {
    if (busy[i]) continue;
    if (best < 0) {
      best = static_cast<int>(i);
      continue;
    }
    const std::size_t held = buffer_bytes_[size(best)], here = buffer_bytes_[i];
    if (held < bytes ? here > held : here >= bytes && here < held) best = static_cast<int>(i);
  }
  if (best < 0) {
    best = static_cast<int>(buffer_bytes_.size());
    buffer_bytes_.push_back(0);
    busy.push_back(0);
  }
  busy[size(best)] = 1;
  buffer_bytes_[size(best)] = std::max(buffer_bytes_[size(best)], bytes);
  return best;
}

void Plan::place_buffers() {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].output >= 0) values_[size(ops_[i].output)].last_use = static_cast<int>(i);
    for (const Value read : ops_[i].reads) values_[size(read)].last_use = static_cast<int>(i);
  }
  values_[size(logits_)].last_use = INT32_MAX;
  std::vector<char> busy;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    std::vector<Value> touched = ops_[i].reads;
    if (ops_[i].output >= 0) {
      ValueInfo& out = values_[size(ops_[i].output)];
      out.buffer = take_buffer(busy, bytes_of(out));
      touched.push_back(ops_[i].output);
    }
    for (const Value value : touched)
      if (values_[size(value)].last_use == static_cast<int>(i)) busy[size(values_[size(value)].buffer)] = 0;
  }
}

// How `op` spreads a value over threads: ops with the same layout touch the same bytes from the same thread. 0 = no
// such promise.
std::size_t Plan::row_layout(const Op& op, Value value) const {
  const ValueInfo& v = values_[size(value)];
  const bool is_float =
      v.row_bytes == size(v.width) * sizeof(float);  // the int8 form keeps its parts in separate arrays
  return op.by_rows && is_float ? 2 * v.row_bytes + v.per_logit_row : 0;
}

// An op needs a barrier when, since the last one, another thread may have written what it reads or writes, or read what
// it writes.
void Plan::place_barriers() {
  struct Uses {
    bool any = false;
    std::size_t layout = 0;
    bool conflict(std::size_t other) const { return any && (layout == 0 || layout != other); }
    void add(std::size_t other) { *this = {true, any && layout != other ? 0 : other}; }
  };
  struct Touch {
    std::size_t buffer, layout;
  };
  const std::size_t cache = buffer_bytes_.size();
  std::vector<Uses> read(cache + 1), written(cache + 1);
  for (Op& op : ops_) {
    std::vector<Touch> reads, writes;
    for (const Value v : op.reads) reads.push_back({size(values_[size(v)].buffer), row_layout(op, v)});
    if (op.output >= 0) writes.push_back({size(values_[size(op.output)].buffer), row_layout(op, op.output)});
    if (op.reads_cache) reads.push_back({cache, 0});
    if (op.writes_cache) writes.push_back({cache, 0});
    op.barrier = false;
    for (const Touch& t : reads) op.barrier |= written[t.buffer].conflict(t.layout);
    for (const Touch& t : writes)
      op.barrier |= written[t.buffer].conflict(t.layout) || read[t.buffer].conflict(t.layout);
    if (op.barrier) {
      read.assign(cache + 1, {});
      written.assign(cache + 1, {});
    }
    for (const Touch& t : reads) read[t.buffer].add(t.layout);
    for (const Touch& t : writes) written[t.buffer].add(t.layout);
  }
}

void Plan::prepare(const Step& step) {
  if (buffers_.empty()) throw std::invalid_argument("the plan is not finished");
  if (step.slots.size() != groups_.size() || step.tables.size() != groups_.size())
    throw std::invalid_argument("slots and block_tables must have one entry per KV group (" +
                                std::to_string(groups_.size()) + ")");
  tiles_.clear();
  for (const Run& run : check_step(step, limits_, groups_, block_size_, vocab_))
    for (int row = run.row_begin; row < run.row_end; row += kAttentionTile)
      tiles_.push_back(
          {row, std::min(row + kAttentionTile, run.row_end), run.position + row - run.row_begin, run.request});
}

void Plan::execute(const Step& step, const std::function<void(int)>& after, Trace* trace) {
  const auto add_trace = [&](const Op& op, Value value) {
    const ValueInfo& info = values_[size(value)];
    std::vector<std::uint64_t> sums;
    for (int row = 0; row < row_count(info, step); ++row)
      sums.push_back(checksum(data<std::uint8_t>(value) + size(row) * info.row_bytes, info.row_bytes));
    trace->emplace_back(segments_[op.segment].name + "/" + op.name, std::move(sums));
  };
  const auto complete = [&](std::size_t& first, std::size_t end) {  // segments whose last op every thread has done
    for (; first < end; ++first) ++segments_[first].done;
  };
  pool_.run([&](int thread) {
    std::size_t running = 0;
    for (const Op& op : ops_) {
      if (op.barrier) {
        pool_.barrier();
        if (thread == 0) complete(running, op.segment);
      }
      op.work(step, thread);
      if (!trace || op.output < 0 || op.name == "quantize") continue;
      pool_.barrier();
      if (thread == 0) add_trace(op, op.output);
      pool_.barrier();
    }
    pool_.barrier();
    if (thread == 0) complete(running, segments_.size());
    if (after) after(thread);
  });
  if (trace) {
    add_trace(ops_.back(), logits_);
    trace->back().first = segments_[ops_.back().segment].name + "/logits";
  }
}

void Plan::run(const Step& step, const SampleColumns& columns, const SampleOutputs& out) {
  const std::lock_guard<std::mutex> lock(running_);
  prepare(step);
  execute(
      step,
      [&](int thread) {
        for (int row = thread; row < step.logit_rows; row += pool_.size())
          samplers_[size(thread)].run(data(logits_), row, columns, out);
      },
      nullptr);
}

void Plan::run_logits(const Step& step, float* out) {
  const std::lock_guard<std::mutex> lock(running_);
  prepare(step);
  execute(step, nullptr, nullptr);
  std::memcpy(out, data(logits_), size(step.logit_rows) * size(vocab()) * sizeof(float));
}

Plan::Trace Plan::trace(const Step& step) {
  const std::lock_guard<std::mutex> lock(running_);
  prepare(step);
  Trace trace;
  execute(step, nullptr, &trace);
  return trace;
}

std::vector<std::pair<std::string, std::uint64_t>> Plan::segments_done() const {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (const Segment& segment : segments_) out.emplace_back(segment.name, segment.done.load());
  return out;
}

}  // namespace forebay
