#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace forebay {

namespace {

// Ascending keys are descending values; equal values (+0 and -0 too) fall back to ascending ids.
std::uint64_t key_of(float value, int id) {
  value += 0.0f;
  std::uint32_t word;
  std::memcpy(&word, &value, 4);
  const std::uint32_t ascending = word & 0x80000000u ? ~word : word | 0x80000000u;
  return (std::uint64_t{~ascending} << 32) | static_cast<std::uint32_t>(id);
}

int id_of(std::uint64_t key) { return static_cast<int>(key & 0xffffffffu); }

// A weight in (0, 1] as 32-bit fixed point: sums are exact in any order.
std::uint64_t fixed_point(float weight) { return static_cast<std::uint64_t>(weight * 0x1p32f); }

constexpr float kGreedyTemperature = 1e-30f;  // below this, logits / temperature overflow

}  // namespace

void Sampler::run(const float* logits, int row, const SampleColumns& columns, const SampleOutputs& out) {
  const float* own = logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(vocab_);
  const RowStats stats = kernels_.row_stats(own, vocab_);
  out.ok[row] = !stats.has_nan && std::isfinite(stats.max);
  const bool greedy = columns.temperature[row] < kGreedyTemperature || !out.ok[row];
  out.token[row] = greedy ? stats.argmax : draw(own, stats, row, columns);
  write_logprobs(own, stats, row, out.ok[row] ? columns.num_logprobs[row] : -1, out);
}

void Sampler::select_top(const float* logits, float factor, int count) {
  // Keep up to twice `count` keys; whenever full, drop all but the best `count` and skip what is below the last of
  // them.
  const std::size_t want = static_cast<std::size_t>(std::min(count, vocab_));
  float bar = -std::numeric_limits<float>::infinity();
  const auto next = [&](int from) { return kernels_.next_at_least(logits, from, vocab_, factor, bar); };
  keys_.clear();
  for (int id = next(0); id < vocab_; id = next(id + 1)) {
    keys_.push_back(key_of(logits[id] * factor, id));
    if (keys_.size() < 2 * want + 64) continue;
    std::nth_element(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(want) - 1, keys_.end());
    keys_.resize(want);
    bar = logits[id_of(keys_.back())] * factor;
  }
  std::sort(keys_.begin(), keys_.end());
  keys_.resize(want);
}

// How many of the first `limit` sorted candidates the nucleus keeps: the shortest prefix that reaches
// ceil(top_p * total); limit + 1 when all of them together do not.
int Sampler::nucleus(float top_p, std::uint64_t total, int limit) {
  const double wanted = std::ceil(static_cast<double>(top_p) * static_cast<double>(total));
  std::uint64_t sum = 0;
  for (int i = 0; i < limit; ++i) {
    sum += fixed_point(weights_[static_cast<std::size_t>(id_of(keys_[static_cast<std::size_t>(i)]))]);
    if (static_cast<double>(sum) >= wanted) return i + 1;
  }
  return limit + 1;
}

int Sampler::draw(const float* logits, const RowStats& stats, int row, const SampleColumns& columns) {
  const float factor = 1.0f / columns.temperature[row];
  const Draw key{columns.seed[row], static_cast<std::uint32_t>(columns.output_position[row]),
                 static_cast<std::uint32_t>(columns.child[row])};
  const float min_p = columns.min_p[row], top_p = columns.top_p[row];
  const int top_k = columns.top_k[row] > 0 && columns.top_k[row] < vocab_ ? columns.top_k[row] : 0;
  int token = stats.argmax;
  weights_.resize(static_cast<std::size_t>(vocab_));
  kernels_.weights(logits, vocab_, factor, stats.max * factor, weights_.data());
  if (top_k == 0 && top_p >= 1.0f) {
    kernels_.race(weights_.data(), vocab_, min_p, key, &token);
    return token;
  }
  int kept = top_k;
  if (top_k > 0) {
    select_top(logits, factor, top_k);
    std::uint64_t total = 0;
    for (const std::uint64_t k : keys_) total += fixed_point(weights_[static_cast<std::size_t>(id_of(k))]);
    if (top_p < 1.0f) kept = std::min(top_k, nucleus(top_p, total, top_k));
  } else {
    const std::uint64_t total = kernels_.fixed_total(weights_.data(), vocab_);
    for (int guess = 64;; guess *= 8) {
      guess = std::min(guess, vocab_);
      select_top(logits, factor, guess);
      kept = nucleus(top_p, total, guess);
      if (kept <= guess || guess == vocab_) break;
    }
    kept = std::min(kept, vocab_);
  }
  ids_.clear();
  kept_.clear();
  for (int i = 0; i < kept; ++i) {
    const int id = id_of(keys_[static_cast<std::size_t>(i)]);
    const float weight = weights_[static_cast<std::size_t>(id)];
    if (weight < min_p) continue;
    ids_.push_back(id);
    kept_.push_back(weight);
  }
  kernels_.race_listed(ids_.data(), kept_.data(), static_cast<int>(ids_.size()), key, &token);
  return token;
}

void Sampler::write_logprobs(const float* logits, const RowStats& stats, int row, int count, const SampleOutputs& out) {
  const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(out.max_logprobs);
  for (int i = 0; i < out.max_logprobs; ++i) {
    out.top_ids[first + static_cast<std::size_t>(i)] = -1;
    out.top_logprobs[first + static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
  }
  out.logprob[row] = std::numeric_limits<float>::quiet_NaN();
  if (count < 0) return;
  const float log_sum = kernels_.log_sum_exp(logits, vocab_, stats.max);
  out.logprob[row] = logits[out.token[row]] - log_sum;
  count = std::min(count, std::min(out.max_logprobs, vocab_));
  if (count == 0) return;
  select_top(logits, 1.0f, count);
  for (int i = 0; i < count; ++i) {
    const int id = id_of(keys_[static_cast<std::size_t>(i)]);
    out.top_ids[first + static_cast<std::size_t>(i)] = id;
    out.top_logprobs[first + static_cast<std::size_t>(i)] = logits[id] - log_sum;
  }
}

}  // namespace forebay
