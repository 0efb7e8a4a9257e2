#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

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
  out.ok[row] = !stats.has_nan && std::isfinite(stats.max);
  out.token[row] = out.ok[row] ? choose(own, stats, row, columns) : stats.argmax;
  const bool chosen = out.ok[row] && out.token[row] >= 0;
  write_logprobs({own, vocab_, 1.0f, stats.max}, stats, row, chosen ? columns.num_logprobs[row] : -1, out);
}

// The token of a row of finite logits; -1 if its edits leave none.
int Sampler::choose(const float* logits, RowStats stats, int row, const SampleColumns& columns) {
  if (columns.target && columns.target[row] >= 0) return columns.target[row];
  if (columns.edits.change(row)) {
    logits = edit(logits, columns.edits, row);
    stats = kernels_.row_stats(logits, vocab_);
    if (stats.max == -kInfinity) return -1;
  }
  const bool greedy = columns.temperature[row] < kGreedyTemperature;
  const float factor = greedy ? 1.0f : 1.0f / columns.temperature[row];
  const ScaledRow scaled{logits, vocab_, factor, stats.max * factor};
  if (greedy || !std::isfinite(scaled.top)) return stats.argmax;
  const int top_k = columns.top_k[row];
  const Filters filters{top_k < vocab_ ? top_k : 0, columns.top_p[row], std::min(columns.min_p[row], 1.0f),
                        columns.typical_p ? columns.typical_p[row] : 1.0f};
  const Draw key{columns.seed[row], static_cast<std::uint32_t>(columns.output_position[row]),
                 static_cast<std::uint32_t>(columns.child[row])};
  return filters.typical_p < 1.0f ? draw_typical(scaled, stats, filters, key) : draw(scaled, stats, filters, key);
}

// A changed copy of a row.
const float* Sampler::edit(const float* logits, const LogitEdits& edits, int row) {
  edited_.assign(logits, logits + vocab_);
  const float repetition = edits.repetition[row];
  for (std::int32_t i = edits.start[row]; i < edits.start[row + 1]; ++i) {
    float& x = edited_[static_cast<std::size_t>(edits.token[i])];
    const std::int32_t count = edits.count[i];
    if (count >= 0 && repetition != 1.0f) x = x > 0.0f ? x / repetition : x * repetition;
    if (count > 0) x = x - (edits.frequency[row] * static_cast<float>(count) + edits.presence[row]);
    x = x + edits.bias[i];
  }
  if (edits.mask[row] < 0) return edited_.data();
  const std::uint32_t* words = edits.masks + static_cast<std::size_t>(edits.mask[row]) * edits.words;
  for (int first = 0; first < vocab_; first += 32) {
    const std::uint32_t allowed = words[first / 32];
    if (allowed == 0xffffffffu) continue;
    for (int id = first; id < std::min(first + 32, vocab_); ++id)
      if (!(allowed >> (id - first) & 1u)) edited_[static_cast<std::size_t>(id)] = -kInfinity;
  }
  return edited_.data();
}

int Sampler::draw(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw) {
  if (filters.top_k) return race_best(list_top_k(scaled, stats, filters), filters.min_p, draw);
  if (filters.top_p < 1.0f) return draw_nucleus(scaled, stats, filters, draw);
  return kernels_.race(scaled, {-kInfinity, vocab_}, filters.min_p, draw, stats.argmax);
}

// Lists the top_k best and gives how many of them top_p leaves.
int Sampler::list_top_k(const ScaledRow& scaled, const RowStats& stats, const Filters& filters) {
  select_best(scaled, stats, filters.top_k);
  if (filters.top_p < 1.0f) std::sort(keys_.begin(), keys_.end());
  list_best(scaled);
  if (filters.top_p >= 1.0f) return filters.top_k;
  std::uint64_t mass = 0;
  for (const float weight : weights_) mass += fixed_point(weight);
  return std::min(filters.top_k, nucleus(wanted_of(filters.top_p, mass)));
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

// Of what the other filters leave, the tokens whose information is nearest to the mean (Locally Typical Sampling,
// arXiv:2202.00666).
int Sampler::draw_typical(const ScaledRow& scaled, const RowStats& stats, const Filters& filters, const Draw& draw) {
  int count = vocab_;
  if (filters.top_k)
    count = list_top_k(scaled, stats, filters);
  else if (filters.top_p < 1.0f)
    count = list_nucleus(scaled, stats, filters.top_p);
  else
    list_all(scaled);
  keep_typical(scaled, drop_weak(count, filters.min_p), filters.typical_p);
  return kernels_.race_listed(ids_.data(), weights_.data(), static_cast<int>(ids_.size()), draw);
}

// Lists the best tokens, at least the nucleus, and gives its size.
int Sampler::list_nucleus(const ScaledRow& scaled, const RowStats& stats, float top_p) {
  const double wanted = wanted_of(top_p, kernels_.mass_before(scaled, {-kInfinity, vocab_}));
  for (int guess = std::min(kNucleusGuess, vocab_);; guess = std::min(8 * guess, vocab_)) {
    select_best(scaled, stats, guess);
    std::sort(keys_.begin(), keys_.end());
    list_best(scaled);
    const int kept = nucleus(wanted);
    if (kept <= guess || guess == vocab_) return std::min(kept, guess);
  }
}

void Sampler::list_all(const ScaledRow& scaled) {
  ids_.resize(static_cast<std::size_t>(vocab_));
  std::iota(ids_.begin(), ids_.end(), 0);
  weights_.resize(ids_.size());
  kernels_.weights(scaled, ids_.data(), vocab_, weights_.data());
}

// Of the first `count` listed candidates keeps the shortest run, nearest to the mean first, that has this share of
// their mass. -log p - H is mean - scaled: what both have in common cancels.
void Sampler::keep_typical(const ScaledRow& scaled, int count, float typical_p) {
  double mass = 0, sum = 0;
  std::uint64_t fixed_mass = 0;
  typical_.clear();
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const float own = scaled.logits[ids_[i]] * scaled.factor - scaled.top;
    mass += static_cast<double>(weights_[i]);
    sum += static_cast<double>(weights_[i]) * static_cast<double>(own);
    fixed_mass += fixed_point(weights_[i]);
    typical_.push_back({0.0, own, weights_[i], ids_[i]});
  }
  const double mean = sum / mass, wanted = wanted_of(typical_p, fixed_mass);
  for (Candidate& c : typical_) c.distance = std::abs(static_cast<double>(c.scaled) - mean);
  const auto nearer = [](const Candidate& a, const Candidate& b) {
    if (a.distance != b.distance) return a.distance < b.distance;
    return a.scaled != b.scaled ? a.scaled > b.scaled : a.id < b.id;
  };
  ids_.clear();
  weights_.clear();
  std::uint64_t reached = 0;
  for (std::size_t sorted = 0; sorted < typical_.size() && static_cast<double>(reached) < wanted;) {
    const auto from = typical_.begin() + static_cast<std::ptrdiff_t>(sorted);
    const std::size_t next = std::min(std::max(std::size_t{64}, 4 * sorted), typical_.size());
    const auto to = typical_.begin() + static_cast<std::ptrdiff_t>(next);
    std::partial_sort(from, to, typical_.end(), nearer);
    for (; sorted < next && (ids_.empty() || static_cast<double>(reached) < wanted); ++sorted) {
      reached += fixed_point(typical_[sorted].weight);
      ids_.push_back(typical_[sorted].id);
      weights_.push_back(typical_[sorted].weight);
    }
  }
}

// The winner among the first `count` listed candidates that weigh at least min_p.
int Sampler::race_best(int count, float min_p, const Draw& draw) {
  return kernels_.race_listed(ids_.data(), weights_.data(), drop_weak(count, min_p), draw);
}

// Moves those of the first `count` listed candidates that weigh at least min_p, and anything, to the front.
int Sampler::drop_weak(int count, float min_p) {
  int strong = 0;
  for (int i = 0; i < count; ++i) {
    const std::size_t from = static_cast<std::size_t>(i), to = static_cast<std::size_t>(strong);
    if (weights_[from] < min_p || weights_[from] == 0.0f) continue;
    ids_[to] = ids_[from];
    weights_[to] = weights_[from];
    ++strong;
  }
  return strong;
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
