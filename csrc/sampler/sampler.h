// Sampling and log-probabilities of logit rows; the rules are in docs/ops.md. Plain code over the kernel table.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/kernels.h"

namespace forebay {

// Columns of a step's sampling, one entry per logit row; see SampleBatch and StepOutputs in ops/protocol.py.
struct SampleColumns {
  const float *temperature, *top_p, *min_p;
  const std::int32_t* top_k;
  const std::uint64_t* seed;
  const std::int32_t *child, *output_position, *num_logprobs;
};

struct SampleOutputs {
  std::int32_t* token;
  float* logprob;
  std::int32_t* top_ids;  // (rows, max_logprobs)
  float* top_logprobs;
  bool* ok;
  int max_logprobs;
};

// One thread's sampler; holds scratch that grows with what is asked.
class Sampler {
 public:
  Sampler(const Kernels& kernels, int vocab) : kernels_(kernels), vocab_(vocab) {}

  void run(const float* logits, int row, const SampleColumns& columns, const SampleOutputs& out);

 private:
  struct Filters {
    int top_k;  // 0 = all
    float top_p, min_p;
  };

  int draw(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw);
  int draw_nucleus(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw);
  int race_best(int count, float min_p, const Draw& draw);
  void select_best(const ScaledRow& scaled, const RowStats& stats, int count);
  void keep_best(std::size_t count);
  void list_best(const ScaledRow& scaled);
  int nucleus(double wanted) const;
  void write_logprobs(const ScaledRow& scaled, const RowStats& stats, int row, int count, const SampleOutputs& out);

  const Kernels& kernels_;
  int vocab_;
  std::vector<std::uint64_t> keys_;  // candidates: place in their order packed as 64 bits, the best is the smallest
  std::vector<std::int32_t> ids_;    // the same candidates by id, and their weights
  std::vector<float> weights_;
};

}  // namespace forebay
