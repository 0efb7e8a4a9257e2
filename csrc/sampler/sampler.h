// Sampling and log-probabilities of logit rows; the rules are in docs/ops.md. Plain code over the kernel table.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/kernels.h"

namespace forebay {

// What changes logits before the filters; see LogitEdits in ops/protocol.py. start is null if nothing does.
struct LogitEdits {
  const std::int32_t *start, *token, *count;
  const float *bias, *repetition, *presence, *frequency;
  const std::uint32_t* masks;  // (masks, words)
  const std::int32_t* mask;
  std::size_t words;

  bool change(int row) const { return start && (start[row] < start[row + 1] || mask[row] >= 0); }
};

// Columns of a step's sampling, one entry per logit row; see SampleBatch and StepOutputs in ops/protocol.py.
struct SampleColumns {
  const float *temperature, *top_p, *min_p;
  const std::int32_t* top_k;
  const std::uint64_t* seed;
  const std::int32_t *child, *output_position, *num_logprobs;
  const float* typical_p;  // or null: all 1
  LogitEdits edits;
  const std::int32_t* target;  // or null; a token that is taken without a draw, or -1
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
    float top_p, min_p, typical_p;
  };
  struct Candidate {
    double distance;  // of its information from the mean
    float scaled, weight;
    std::int32_t id;
  };

  int choose(const float* logits, RowStats stats, int row, const SampleColumns& columns);
  const float* edit(const float* logits, const LogitEdits& edits, int row);
  int draw(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw);
  int draw_nucleus(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw);
  int draw_typical(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw);
  int race_best(int count, float min_p, const Draw& draw);
  int list_top_k(const ScaledRow& scaled, const RowStats& stats, const Filters& filters);
  int list_nucleus(const ScaledRow& scaled, const RowStats& stats, float top_p);
  void list_all(const ScaledRow& scaled);
  int drop_weak(int count, float min_p);
  void keep_typical(const ScaledRow& scaled, int count, float typical_p);
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
  std::vector<Candidate> typical_;
  std::vector<float> edited_;  // a row of logits
};

}  // namespace forebay
