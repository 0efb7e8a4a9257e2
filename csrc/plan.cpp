#include "plan.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

constexpr int kChainRows = 8;
constexpr int kManyRows = 24;  // rows per thread from which threads share rows instead of outputs

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
    : kernels_(kernels),
      limits_(limits),
      block_size_(block_size),
      groups_(std::move(groups)),
      pool_(threads),
      heads_per_kv_head_(groups_.size()),
      shares_(groups_.size()) {
  if (block_size < 1) throw std::invalid_argument("block_size must be at least 1, got " + std::to_string(block_size));
  for (const KVGroup& group : groups_) {
    if (group.head_dim < 1 || group.kv_heads < 1)
      throw std::invalid_argument("a KV group needs at least 1 head and dimension");
    if (group.format == KVFormat::i8 && group.head_dim % 4)
      throw std::invalid_argument("an int8 cache needs a head_dim that is a multiple of 4, got " +
                                  std::to_string(group.head_dim) + "; use f16");
    caches_.emplace_back(group.layers.size() * kv_layer_bytes(group, block_size, limits.num_blocks));
  }
}

int Plan::vocab() const { return logits_ < 0 ? 0 : values_[size(logits_)].width; }

int Plan::hidden_width() const { return hidden_ < 0 ? 0 : values_[size(hidden_)].width; }

std::size_t Plan::bytes_of(const ValueInfo& value) const {
  return size(value.per_logit_row ? limits_.max_logit_rows : limits_.max_tokens) * value.row_bytes;
}

int Plan::row_count(const ValueInfo& value, const Step& step) const {
  return value.per_logit_row ? step.logit_rows : step.tokens;
}

void Plan::finish() {
  if (logits_ < 0) throw std::invalid_argument("the forward pass marked no logits");
  fuse();
  place_buffers();
  place_barriers(ops_);
  place_barriers(fused_);
  share_rows();
  place_barriers(by_rows_);
  for (const std::size_t bytes : buffer_bytes_) buffers_.emplace_back(bytes);
  cut_states_ = AlignedBuffer(size(pool_.size() - 1) * size((limits_.max_model_len - 1) / kSegmentKeys + 1) *
                              state_floats_ * sizeof(float));
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

// Of both programs: a value lives from where either first writes it to where either last touches it.
void Plan::place_buffers() {
  for (const std::vector<Op>* program : {&ops_, &fused_})
    for (const Op& op : *program) {
      if (op.output >= 0) values_[size(op.output)].touched_at(op.index);
      for (const Value read : op.reads) values_[size(read)].touched_at(op.index);
    }
  for (const Value output : {logits_, hidden_})
    if (output >= 0) values_[size(output)].last_use = INT32_MAX;
  std::vector<char> busy;
  for (int index = 0; index < static_cast<int>(ops_.size()); ++index) {
    for (ValueInfo& value : values_)
      if (value.first_use == index) value.buffer = take_buffer(busy, bytes_of(value));
    for (const ValueInfo& value : values_)
      if (value.last_use == index) busy[size(value.buffer)] = 0;
  }
}

// How `op` spreads a value over threads: ops with the same layout touch the same bytes from the same thread. 0 = no
// such promise.
std::size_t Plan::row_layout(const Op& op, Value value) const {
  const ValueInfo& v = values_[size(value)];
  return op.by_rows() ? 2 * v.row_bytes + v.per_logit_row : 0;
}

// An op needs a barrier when, since the last one, another thread may have written what it reads or writes, or read what
// it writes.
void Plan::place_barriers(std::vector<Op>& program) const {
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
  for (Op& op : program) {
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
    for (int row = run.row_begin, end; row < run.row_end; row = end) {
      const int position = run.position + row - run.row_begin;
      end = std::min(row + kAttentionTile - position % kAttentionTile, run.row_end);  // no tile across a segment's edge
      tiles_.push_back({row, end, position, run.request});
    }
  for (std::size_t g = 0; g < groups_.size(); ++g)
    shares_[g].plan(tiles_, groups_[g].kv_heads, heads_per_kv_head_[g], groups_[g].window, pool_.size());
}

// Runs the chain of row ops that starts at `first` over this thread's rows, a few rows at a time so that they stay in
// the nearest cache. Returns where it ends. `alone`: only the first op.
std::size_t Plan::run_chain(const std::vector<Op>& program, std::size_t first, const Step& step, int thread,
                            bool alone) const {
  const bool per_logit_row = program[first].per_logit_row;
  std::size_t end = first + 1;
  const Part part = part_of(per_logit_row ? step.logit_rows : step.tokens, thread, pool_.size());
  if (program[first].at_once) {
    if (part.begin < part.end) program[first].rows_work(step, part);
    return end;
  }
  while (!alone && end < program.size() && program[end].by_rows() && !program[end].at_once && !program[end].barrier &&
         program[end].per_logit_row == per_logit_row)
    ++end;
  for (int row = part.begin; row < part.end; row += kChainRows)
    for (std::size_t i = first; i < end; ++i) program[i].rows_work(step, {row, std::min(row + kChainRows, part.end)});
  return end;
}

void Plan::add_trace(const Op& op, Value value, const std::string& name, const Step& step, Trace& trace) const {
  const ValueInfo& info = values_[size(value)];
  std::vector<std::uint64_t> sums;
  for (int row = 0; row < row_count(info, step); ++row)
    sums.push_back(checksum(data<std::uint8_t>(value) + size(row) * info.row_bytes, info.row_bytes));
  trace.emplace_back(segments_[op.segment].name + "/" + name, std::move(sums));
}

// A trace runs the program as it was recorded, op by op; everything else runs the fused one.
void Plan::execute(const Step& step, const std::function<void(int)>& after, Trace* trace) {
  const std::vector<Op>& program = trace ? ops_ : step.tokens < kManyRows * pool_.size() ? fused_ : by_rows_;
  const auto complete = [&](std::size_t& first, std::size_t end) {  // segments whose last op every thread has done
    for (; first < end; ++first) ++segments_[first].done;
  };
  pool_.run([&](int thread) {
    std::size_t running = 0;
    for (std::size_t next = 0; next < program.size();) {
      const Op& op = program[next];
      if (op.barrier) {
        pool_.barrier();
        if (thread == 0) complete(running, op.segment);
      }
      if (op.by_rows()) {
        next = run_chain(program, next, step, thread, trace != nullptr);
      } else {
        op.work(step, thread);
        ++next;
      }
      if (!trace || !op.traced) continue;
      pool_.barrier();
      if (thread == 0) add_trace(op, op.output, op.name, step, *trace);
      pool_.barrier();
    }
    pool_.barrier();
    if (thread == 0) complete(running, segments_.size());
    if (after) after(thread);
  });
  if (trace) add_trace(ops_.back(), logits_, "logits", step, *trace);
}

void Plan::run(const Step& step, const SampleColumns& columns, const SampleOutputs& out, float* hidden_out) {
  const std::lock_guard<std::mutex> lock(running_);
  if (step.hidden_rows && hidden_ < 0)
    throw std::invalid_argument("hidden_rows: the forward pass marked no hidden state");
  prepare(step);
  execute(
      step,
      [&](int thread) {
        for (int row = thread; row < step.logit_rows; row += pool_.size())
          samplers_[size(thread)].run(data(logits_), row, columns, out);
        const std::size_t width = size(hidden_width());
        for (int i = thread; i < step.hidden_rows; i += pool_.size())
          std::memcpy(hidden_out + size(i) * width, data(hidden_) + size(step.hidden[i]) * width,
                      width * sizeof(float));
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
