#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>

namespace forebay {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGreedyTemperature = 1e-30f;  // below this, logits / temperature overflow
constexpr int kNucleusGuess = 48;             // most nuclei are smaller; a bar for so many lets few others pass

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

// What the nucleus must reach of a mass.
double wanted_of(float top_p, std::uint64_t mass) {
  return std::ceil(static_cast<double>(top_p) * static_cast<double>(mass));
}

// A value that at least `count` tokens reach: the largest of each group are different tokens.
float reached_by(const RowStats& stats, std::size_t count) {
  if (count > kTokenGroups) return -kInfinity;
  float largest[kTokenGroups];
  std::copy(std::begin(stats.group_max), std::end(stats.group_max), largest);
  std::nth_element(largest, largest + count - 1, largest + kTokenGroups, std::greater<float>());
  return largest[count - 1];
}

}  // namespace

void Sampler::run(const float* logits, int row, const SampleColumns& columns, const SampleOutputs& out) {
  const float* own = logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(vocab_);
  const RowStats stats = kernels_.row_stats(own, vocab_);
  const bool greedy = columns.temperature[row] < kGreedyTemperature;
  const float factor = greedy ? 1.0f : 1.0f / columns.temperature[row];
  const ScaledRow scaled{own, vocab_, factor, stats.max * factor};
  out.ok[row] = !stats.has_nan && std::isfinite(stats.max);
  out.token[row] = stats.argmax;
  if (out.ok[row] && !greedy && std::isfinite(scaled.top)) {
    const int top_k = columns.top_k[row];
    const Filters filters{top_k < vocab_ ? top_k : 0, columns.top_p[row], std::min(columns.min_p[row], 1.0f)};
    const Draw key{columns.seed[row], static_cast<std::uint32_t>(columns.output_position[row]),
                   static_cast<std::uint32_t>(columns.child[row])};
    out.token[row] = draw(scaled, stats, filters, key);
  }
  write_logprobs({own, vocab_, 1.0f, stats.max}, stats, row, out.ok[row] ? columns.num_logprobs[row] : -1, out);
}

int Sampler::draw(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw) {
  if (filters.top_k == 0 && filters.top_p < 1.0f) return draw_nucleus(scaled, stats, filters, draw);
  if (filters.top_k == 0) return kernels_.race(scaled, {-kInfinity, vocab_}, filters.min_p, draw, stats.argmax);
  select_best(scaled, stats, filters.top_k);
  if (filters.top_p < 1.0f) std::sort(keys_.begin(), keys_.end());
  list_best(scaled);
  int kept = filters.top_k;
  if (filters.top_p < 1.0f) {
    std::uint64_t mass = 0;
    for (const float weight : weights_) mass += fixed_point(weight);
    kept = std::min(kept, nucleus(wanted_of(filters.top_p, mass)));
  }
  return race_best(kept, filters.min_p, draw);
}

int Sampler::draw_nucleus(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw) {
  Place end{-kInfinity, vocab_};
  const double wanted = wanted_of(filters.top_p, kernels_.mass_before(scaled, end));
  const int guess = std::min(kNucleusGuess, vocab_);
  select_best(scaled, stats, guess);
  std::sort(keys_.begin(), keys_.end());
  list_best(scaled);
  const int kept = nucleus(wanted);
  if (kept <= guess) return race_best(kept, filters.min_p, draw);
  // A large nucleus is not listed. The winner among all tokens is in it with a probability of top_p; a winner that
  // is not shows which tokens to leave out of the next race.
  for (;;) {
    const int token = kernels_.race(scaled, end, filters.min_p, draw, stats.argmax);
    const Place place{scaled.logits[token] * scaled.factor, token};
    if (static_cast<double>(kernels_.mass_before(scaled, place)) < wanted) return token;
    end = place;
  }
}

// The winner among the first `count` listed candidates that weigh at least min_p.
int Sampler::race_best(int count, float min_p, const Draw& draw) {
  int strong = 0;
  for (int i = 0; i < count; ++i) {
    const std::size_t from = static_cast<std::size_t>(i), to = static_cast<std::size_t>(strong);
    if (weights_[from] < min_p) continue;
    ids_[to] = ids_[from];
    weights_[to] = weights_[from];
    ++strong;
  }
  return kernels_.race_listed(ids_.data(), weights_.data(), strong, draw);
}

// Fills keys_ with the best `count` tokens, unsorted. It keeps up to twice as many; whenever full, all but the best
// `count` are dropped, and only what is above the last of them can still enter.
void Sampler::select_best(const ScaledRow& scaled, const RowStats& stats, int count) {
  const std::size_t want = static_cast<std::size_t>(std::min(count, vocab_)), room = 2 * want + 64;
  float bar = reached_by(stats, want) * scaled.factor;
  keys_.clear();
  ids_.resize(room);
  for (int from = 0; from < vocab_;) {
    int found = 0;
    from = kernels_.at_least(scaled, from, bar, ids_.data(), static_cast<int>(room - keys_.size()), &found);
    for (int i = 0; i < found; ++i) {
      const int id = ids_[static_cast<std::size_t>(i)];
      keys_.push_back(key_of(scaled.logits[id] * scaled.factor, id));
    }
    if (from == vocab_) break;
    keep_best(want);
    bar = std::nextafter(scaled.logits[id_of(keys_.back())] * scaled.factor, kInfinity);
  }
  keep_best(want);
}

// Drops all keys but the best `count` and moves the last of those to the end.
void Sampler::keep_best(std::size_t count) {
  std::nth_element(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(count) - 1, keys_.end());
  keys_.resize(count);
}

// ids_ and weights_ of the selected candidates, in the order of keys_.
void Sampler::list_best(const ScaledRow& scaled) {
  ids_.clear();
  for (const std::uint64_t key : keys_) ids_.push_back(id_of(key));
  weights_.resize(ids_.size());
  kernels_.weights(scaled, ids_.data(), static_cast<int>(ids_.size()), weights_.data());
}

// How many of the listed candidates, best first, the nucleus keeps: the shortest prefix whose mass reaches `wanted`;
// one more than there are when all of them together do not.
int Sampler::nucleus(double wanted) const {
  std::uint64_t mass = 0;
  int kept = 1;
  for (const float weight : weights_) {
    mass += fixed_point(weight);
    if (static_cast<double>(mass) >= wanted) break;
    ++kept;
  }
  return kept;
}

void Sampler::write_logprobs(const ScaledRow& scaled, const RowStats& stats, int row, int count,
                             const SampleOutputs& out) {
  const std::size_t first = static_cast<std::size_t>(row) * static_cast<std::size_t>(out.max_logprobs);
  std::int32_t* top_ids = out.top_ids + first;
  float* top_logprobs = out.top_logprobs + first;
  std::fill_n(top_ids, out.max_logprobs, -1);
  std::fill_n(top_logprobs, out.max_logprobs, std::numeric_limits<float>::quiet_NaN());
  out.logprob[row] = std::numeric_limits<float>::quiet_NaN();
  if (count < 0) return;
  const float log_sum = kernels_.log_sum_exp(scaled.logits, vocab_, stats.max);
  out.logprob[row] = scaled.logits[out.token[row]] - log_sum;
  count = std::min(count, std::min(out.max_logprobs, vocab_));
  if (count == 0) return;
  select_best(scaled, stats, count);
  std::sort(keys_.begin(), keys_.end());
  for (int i = 0; i < count; ++i) {
    top_ids[i] = id_of(keys_[static_cast<std::size_t>(i)]);
    top_logprobs[i] = scaled.logits[top_ids[i]] - log_sum;
  }
}

}  // namespace forebay
