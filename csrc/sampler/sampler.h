// Sampling and log-probabilities of logit rows; the rules are in docs/ops.md. Plain code over the kernel table.
#pragma once

#include <cstdint>
#include <utility>
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

// One thread's sampler; holds scratch of the vocabulary's size.
class Sampler {
 public:
  Sampler(const Kernels& kernels, int vocab) : kernels_(kernels), vocab_(vocab) {}

  void run(const float* logits, int row, const SampleColumns& columns, const SampleOutputs& out);

 private:
  // Best candidates: sort key (value descending, id ascending) packed as 64 bits, smaller is better.
  void select_top(const float* logits, float factor, int count);
  int draw(const float* logits, const RowStats& stats, int row, const SampleColumns& columns);
  int nucleus(float top_p, std::uint64_t total, int limit);
  void write_logprobs(const float* logits, const RowStats& stats, int row, int count, const SampleOutputs& out);

  const Kernels& kernels_;
  int vocab_;
  std::vector<float> weights_;
  std::vector<std::uint64_t> keys_;  // select_top's result, sorted
  std::vector<std::int32_t> ids_;
  std::vector<float> kept_;
};

}  // namespace forebay
