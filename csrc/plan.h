// A recorded forward pass. Op calls record; finish() places buffers; run() executes a whole step on the thread pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attention/shares.h"
#include "forebay/aligned_buffer.h"
#include "forebay/kernels.h"
#include "linear/formats.h"
#include "sampler/sampler.h"
#include "step.h"
#include "thread_pool.h"

namespace forebay {

// A weight as stored: (rows, format.row_bytes(columns)) bytes.
struct StoredWeight {
  const Format& format;
  const std::uint8_t* data;
  int rows, columns;
};

class Plan {
 public:
  using Value = int;  // handle of an op's output: (rows of the step, width)
  using Trace = std::vector<std::pair<std::string, std::vector<std::uint64_t>>>;

  Plan(const Kernels& kernels, int threads, const PlanLimits& limits, int block_size, std::vector<KVGroup> groups);

  // Recording; meanings in ops/protocol.py. All throw std::invalid_argument on shapes that do not fit.
  void segment(const std::string& name);
  Value embed(const StoredWeight& weight);  // `weight.data` must outlive the plan
  Value linear(Value x, const StoredWeight& weight, const float* bias);
  Value rms_norm(Value x, const float* weight, int width, float eps);
  // cos, sin: (positions, rotary_dim / 2), must outlive the plan.
  Value rope(Value x, int head_dim, const float* cos, const float* sin, int positions, int rotary_dim);
  void kv_write(int layer, Value k, Value v);
  Value attention(Value q, int layer, float scale);
  Value act_mul(Value gate, Value up, const std::string& activation);
  Value add(Value x, Value y);
  Value scale(Value x, float factor);
  Value softcap(Value x, float cap);
  Value rows(Value x);
  void hidden(Value x);
  void logits(Value x);
  void finish();

  int vocab() const;
  int hidden_width() const;  // of the rows that hidden() marked; 0 if it marked none
  // Forward and sampling; hidden_out (hidden rows, hidden_width) may be null if the step has none. Throws
  // std::invalid_argument, before anything is computed, when the step is out of range.
  void run(const Step& step, const SampleColumns& columns, const SampleOutputs& out, float* hidden_out);
  void run_logits(const Step& step, float* out);  // out (logit rows, vocab)
  Trace trace(const Step& step);                  // per op: "segment/op", checksum of each output row
  std::vector<std::pair<std::string, std::uint64_t>> segments_done() const;  // how often each segment has completed

 private:
  using Work = std::function<void(const Step&, int thread)>;
  using RowsWork = std::function<void(const Step&, Part rows)>;
  struct ValueInfo {
    bool per_logit_row;
    int width;
    std::size_t row_bytes;
    int first_use = INT32_MAX, last_use = -1;  // indices of ops
    int buffer = -1;

    void touched_at(int index) {
      first_use = index < first_use ? index : first_use;
      last_use = index > last_use ? index : last_use;
    }
  };
  // y = residual + x w^T + bias, or with `up` the int8 form of act_mul(x w^T, x up^T). residual -1: none.
  struct Product {
    const PackedWeight *w = nullptr, *up = nullptr;
    Value x = -1, residual = -1, y = -1;
    Activation activation = Activation::silu;
  };
  struct Op {
    std::string name;
    int index = 0;  // in the program as recorded
    std::size_t segment = 0;
    std::vector<Value> reads;
    Value output = -1;
    bool per_logit_row = false;
    bool reads_cache = false, writes_cache = false;
    bool traced = false;
    Product product;                           // of a linear
    Activation activation = Activation::silu;  // of an act_mul
    bool barrier = true;
    // One of the two. By rows: row r of the output needs only row r of what it reads, and every thread has the same
    // share of rows in each such op, so that a chain of them needs no wait and goes through a few rows at a time.
    // at_once: all of a thread's rows together.
    RowsWork rows_work;
    bool at_once = false;
    Work work;

    bool by_rows() const { return static_cast<bool>(rows_work); }
  };
  struct Segment {
    std::string name;
    std::atomic<std::uint64_t> done{0};
  };
  struct LayerCache {
    const KVGroup* group;
    std::size_t number;
    KVLayer layer;
  };

  // Recording (plan_record.cpp).
  Value new_value(bool per_logit_row, int width, std::size_t row_bytes);
  Op& record(const char* name, std::vector<Value> reads, Value output);
  Value record_by_rows(const char* name, std::vector<Value> reads, Value output, RowsWork work);
  Value record_shared(const char* name, std::vector<Value> reads, Value output, Work work);
  Value elementwise(const char* name, std::vector<Value> inputs,
                    std::function<void(std::size_t, std::size_t, float*)> map);
  Value quantized(Value x);
  static bool is_float(Storage storage) { return storage <= Storage::bf16; }
  const ValueInfo& info(Value value) const;
  bool is_output(Value value) const { return value == logits_ || value == hidden_; }
  LayerCache cache_of(int layer) const;
  QuantizedRows quantized_rows(Value value) const;

  // Linears (plan_linear.cpp).
  void make_product(Op& op, const Product& product);
  void multiply(const Product& product, Part rows, Part panels);
  void share_rows();

  // Fusion (plan_fuse.cpp).
  struct Uses;
  void fuse();
  int sole_linear(Value value, const Uses& uses) const;
  void fuse_gated(std::size_t at, const Uses& uses, std::vector<char>& gone);
  void fuse_residual(std::size_t at, const Uses& uses, std::vector<char>& gone);

  // Placement and running (plan.cpp).
  void place_buffers();
  void place_barriers(std::vector<Op>& program) const;
  std::size_t row_layout(const Op& op, Value value) const;
  int take_buffer(std::vector<char>& busy, std::size_t bytes);
  std::size_t bytes_of(const ValueInfo& value) const;
  int row_count(const ValueInfo& value, const Step& step) const;
  std::size_t run_chain(const std::vector<Op>& program, std::size_t first, const Step& step, int thread,
                        bool alone) const;
  void add_trace(const Op& op, Value value, const std::string& name, const Step& step, Trace& trace) const;
  void prepare(const Step& step);
  void execute(const Step& step, const std::function<void(int)>& after, Trace* trace);

  // Attention (plan_attention.cpp).
  void attend(const AttentionArgs& args, const LayerCache& cache, const Step& step, int thread);
  void join_cuts(const AttentionArgs& args, const LayerCache& cache, const Step& step, Part rows);
  float* states_of_cut(int cut);

  float* scratch(int thread) { return reinterpret_cast<float*>(scratch_[static_cast<std::size_t>(thread)].data()); }
  template <class T = float>
  T* data(Value value) const {
    return reinterpret_cast<T*>(
        buffers_[static_cast<std::size_t>(values_[static_cast<std::size_t>(value)].buffer)].data());
  }

  const Kernels& kernels_;
  const PlanLimits limits_;
  const int block_size_;
  const std::vector<KVGroup> groups_;
  std::mutex running_;
  ThreadPool pool_;
  std::vector<AlignedBuffer> caches_;  // per group [layer][K | V], each as KVLayer says

  std::deque<Segment> segments_;
  std::vector<ValueInfo> values_;
  std::vector<Op> ops_;      // as recorded
  std::vector<Op> fused_;    // what runs, threads sharing the outputs of each linear
  std::vector<Op> by_rows_;  // the same for steps of many rows, threads sharing the rows
  Arena weight_memory_;
  std::deque<PackedWeight> weights_;
  std::deque<std::vector<float>> vectors_;  // norm weights and biases
  std::map<Value, Value> quantized_;        // float value -> its int8 form
  Value logits_ = -1, hidden_ = -1;
  int vocab_ = INT32_MAX;  // token ids that every embedding has

  std::vector<std::size_t> buffer_bytes_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<AlignedBuffer> scratch_;  // per thread
  std::size_t scratch_floats_ = 0;
  std::vector<Sampler> samplers_;        // per thread
  std::vector<Run> tiles_;               // the step's runs, cut to attention tiles
  std::vector<int> heads_per_kv_head_;   // per KV group
  std::vector<AttentionShares> shares_;  // per KV group, of the step
  AlignedBuffer cut_states_;             // of items that threads share, [threads - 1][segments][state]
  std::size_t state_floats_ = 0;
};

}  // namespace forebay
