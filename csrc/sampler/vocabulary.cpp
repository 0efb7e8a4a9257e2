// What the sampler does over the whole vocabulary of one row, 64 tokens at a time.
#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

constexpr unsigned kAllLanes = 0xffff;
constexpr int kPhiloxBlocks = 2;  // of 64 tokens, computed at once

// A row as blocks of Size tokens, the last one filled up with -inf (weightless).
template <int Size>
struct Blocks {
  const float* logits;
  int end;
  float tail[Size];

  const float* at(int first) {
    if (first + Size <= end) return logits + first;
    for (int i = 0; i < Size; ++i) tail[i] = first + i < end ? logits[first + i] : -INFINITY;
    return tail;
  }
};

F32x16 max_of_64(const float* x) { return max(max(load(x), load(x + 16)), max(load(x + 32), load(x + 48))); }

// Whether no logit * factor of the 64 reaches `bar`; rounding keeps order, so the largest logit tells.
bool all_below(const float* x, F32x16 factor, F32x16 bar) {
  return less_mask(mul(max_of_64(x), factor), bar) == kAllLanes;
}

I32x16 splat(std::uint32_t word) { return set1_i(static_cast<std::int32_t>(word)); }

// Philox4x32-10 (Salmon et al., SC 2011) of counters (c, output position, child, 0), 16 c at once. With three words of
// the counter the same for the row, two of the first four products are too.
class Philox {
 public:
  explicit Philox(const Draw& draw) {
    std::uint32_t key0 = static_cast<std::uint32_t>(draw.seed), key1 = static_cast<std::uint32_t>(draw.seed >> 32);
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
      key0_[round] = key0;
      key1_[round] = key1;
    }
    const std::uint64_t first = std::uint64_t{draw.child} * kFactor2;
    const std::uint32_t word0 = static_cast<std::uint32_t>(first >> 32) ^ draw.output_position ^ key0_[0];
    const std::uint64_t second = std::uint64_t{word0} * kFactor0;
    word0_ = static_cast<std::uint32_t>(first) ^ key0_[1];
    word2_ = static_cast<std::uint32_t>(second >> 32) ^ key1_[1];
    word3_ = static_cast<std::uint32_t>(second);
  }

  // In: counters in the lanes of word[b][0]. Out: their word j in the same lanes of word[b][j]. Several blocks of
  // counters at once hide the latency of the multiplications.
  template <int Blocks>
  void run(I32x16 (&word)[Blocks][4]) const {
    I32x16 high0, low0, high2, low2;
    FOREBAY_UNROLL
    for (int b = 0; b < Blocks; ++b) {
      multiply(word[b][0], kFactor0, &high0, &low0);
      multiply(xor_i(high0, splat(key1_[0])), kFactor2, &high2, &low2);
      word[b][0] = xor_i(high2, splat(word0_));
      word[b][1] = low2;
      word[b][2] = xor_i(low0, splat(word2_));
      word[b][3] = splat(word3_);
    }
    FOREBAY_UNROLL
    for (int round = 2; round < 10; ++round) {
      FOREBAY_UNROLL
      for (int b = 0; b < Blocks; ++b) {
        multiply(word[b][0], kFactor0, &high0, &low0);
        multiply(word[b][2], kFactor2, &high2, &low2);
        word[b][0] = xor_i(high2, word[b][1], splat(key0_[round]));
        word[b][2] = xor_i(high0, word[b][3], splat(key1_[round]));
        word[b][1] = low2;
        word[b][3] = low0;
      }
    }
  }

 private:
  static constexpr std::uint32_t kFactor0 = 0xD2511F53u, kFactor2 = 0xCD9E8D57u;
  std::uint32_t key0_[10], key1_[10];
  std::uint32_t word0_, word2_, word3_;  // of the second round, where they do not depend on the counter
};

// The exponential race: the smallest -log(1 - u) / weight wins, ties to the lowest id.
struct Race {
  double best = INFINITY;
  int token = -1;

  // Whether it leads now.
  bool enter(int id, float weight, std::uint32_t word) {
    const double u = (word + 0.5) * 0x1p-32, w = weight;
    if (u > best * w * 1.0000001) return false;  // -log(1 - u) >= u: it cannot win, and the logarithm is saved
    const double arrival = -log(1.0 - u) / w;
    if (!(arrival < best || (arrival == best && id < token))) return false;
    best = arrival;
    token = id;
    return true;
  }
};

// A race over a row. Few tokens can still win once a good one has entered. A bound of log2(u) from below, the bits of a
// float read as a number, is held against log2(weight * best); only who passes gets a weight and a scalar look.
class RowRace {
 public:
  RowRace(const ScaledRow& row, const Place& end, float min_weight, const Draw& draw)
      : row_(row), end_(end), min_weight_(min_weight), philox_(draw) {
    floor_ = end.scaled - row.top;
    if (min_weight > 0.0f) floor_ = fmaxf(floor_, static_cast<float>(log(static_cast<double>(min_weight)) - kMargin));
    aim();
  }

  int run(int first_token) {
    enter_first(first_token);
    constexpr int size = 64 * kPhiloxBlocks;
    Blocks<size> blocks{row_.logits, row_.n, {}};
    for (int first = 0; first < row_.n; first += size) {
      const float* x = blocks.at(first);
      F32x16 best[kPhiloxBlocks];  // per lane of a block
      unsigned below = kAllLanes;
      FOREBAY_UNROLL
      for (int b = 0; b < kPhiloxBlocks; ++b) {
        best[b] = mul(max_of_64(x + 64 * b), set1(row_.factor));
        below &= less_mask(sub(best[b], set1(row_.top)), set1(reach_));
      }
      if (below == kAllLanes) continue;
      I32x16 word[kPhiloxBlocks][4];
      for (int b = 0; b < kPhiloxBlocks; ++b)
        word[b][0] = add_i(load_i(kLaneCounters), splat(static_cast<std::uint32_t>(first / 4 + 16 * b)));
      philox_.run(word);
      FOREBAY_UNROLL
      for (int b = 0; b < kPhiloxBlocks; ++b) {
        const I32x16 least = min_u(min_u(word[b][0], word[b][1]), min_u(word[b][2], word[b][3]));
        if (contenders(max_of_quarters(best[b]), least)) enter_64(first + 64 * b, x + 64 * b, word[b]);
      }
    }
    return race_.token < 0 ? first_token : race_.token;
  }

 private:
  // Quarter q of the lanes has the words of tokens 16 j + 4 q + (0 .. 3) for every j, and lane i of word[j] belongs to
  // token 16 j + i after transpose_quarters.
  static constexpr std::uint32_t kLaneCounters[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  static constexpr double kLn2 = 0.6931471805599453, kMargin = 1e-3;  // the margin is far above all rounding

  // How good a token must be now: w * best >= u >= 2^-33, and u >= 2^-24 (word >> 8).
  void aim() {
    const double log2_best = log(race_.best) / kLn2 + kMargin;  // log(inf) is a large number here
    level_ = static_cast<float>((log2_best + 127.0 + 24.0) * 0x1p23);
    reach_ = fmaxf(floor_, static_cast<float>((-33.0 - log2_best) * kLn2));
  }

  bool is_allowed(int id, float scaled, float weight) const {
    const bool before_end = scaled > end_.scaled || (scaled == end_.scaled && id < end_.id);
    return before_end && weight > 0.0f && weight >= min_weight_;
  }

  // The lanes whose log2(weight * best) reaches the bound of log2(u), both in units of a float's bits.
  unsigned contenders(F32x16 scaled, I32x16 word) const {
    const F32x16 log2_u = to_f32(bits(to_f32(shift_right_unsigned<8>(word))));
    const F32x16 log2_limit = fma(sub(scaled, set1(row_.top)), set1(static_cast<float>(0x1p23 / kLn2)), set1(level_));
    return ~less_mask(log2_limit, log2_u) & kAllLanes;
  }

  void enter_64(int first, const float* x, I32x16 (&word)[4]) {
    transpose_quarters(word);
    for (int j = 0; j < 4; ++j) {
      const F32x16 scaled = mul(load(x + 16 * j), set1(row_.factor));
      const unsigned lanes = contenders(scaled, word[j]);
      if (lanes) enter_16(lanes, first + 16 * j, scaled, word[j]);
    }
  }

  void enter_16(unsigned lanes, int first, F32x16 scaled, I32x16 word) {
    float values[16], weights[16];
    std::uint32_t words[16];
    store(values, scaled);
    store(weights, exp(sub(scaled, set1(row_.top))));
    store_i(words, word);
    for (; lanes; lanes &= lanes - 1) {
      const int i = __builtin_ctz(lanes);
      if (is_allowed(first + i, values[i], weights[i]) && race_.enter(first + i, weights[i], words[i])) aim();
    }
  }

  void enter_first(int id) {
    I32x16 word[1][4] = {{splat(static_cast<std::uint32_t>(id / 4))}};
    philox_.run(word);
    enter_16(1, id, mul(set1(row_.logits[id]), set1(row_.factor)), word[0][id % 4]);
  }

  const ScaledRow row_;
  const Place end_;
  const float min_weight_;
  const Philox philox_;
  Race race_;
  float floor_;  // no token with logit * factor - top below it is allowed
  float level_, reach_;
};

// The mass of the tokens [begin, end) with logit * factor >= bar.
std::uint64_t mass_at_least(const ScaledRow& row, int begin, int end, float bar) {
  const F32x16 factor = set1(row.factor), top = set1(row.top);
  const F32x16 low = set1(fmaxf(bar, row.top - 22.5f));  // e^-22.5 < 2^-32: below it all masses are 0
  FixedSum sum;
  Blocks<64> blocks{row.logits, end, {}};
  for (int first = begin; first < end; first += 64) {
    const float* x = blocks.at(first);
    if (all_below(x, factor, low)) continue;
    FOREBAY_UNROLL
    for (int i = 0; i < 64; i += 16) {
      const F32x16 scaled = mul(load(x + i), factor);
      sum.add(exp(select_less(scaled, low, set1(-INFINITY), sub(scaled, top))));
    }
  }
  return sum.total();
}

}  // namespace

RowStats row_stats(const float* logits, int n) {
  RowStats stats{-INFINITY, 0, false, {}};
  F32x16 group[4] = {set1(-INFINITY), set1(-INFINITY), set1(-INFINITY), set1(-INFINITY)};
  F32x16 top = set1(-INFINITY), block = zero();  // per lane the best of all groups, and the first block that has it
  Blocks<64> blocks{logits, n, {}};
  for (int first = 0; first < n; first += 64) {
    const float* x = blocks.at(first);
    const F32x16 part[4] = {load(x), load(x + 16), load(x + 32), load(x + 48)};
    stats.has_nan |= any_nan(part[0], part[1]);
    stats.has_nan |= any_nan(part[2], part[3]);
    FOREBAY_UNROLL
    for (int j = 0; j < 4; ++j) group[j] = max(part[j], group[j]);
    const F32x16 best = max(max(part[0], part[1]), max(part[2], part[3]));
    block = select_less(top, best, set1(static_cast<float>(first)), block);
    top = max(best, top);
  }
  for (int j = 0; j < 4; ++j) store(stats.group_max + 16 * j, group[j]);
  stats.max = reduce_max(top);
  float firsts[16];
  store(firsts, select_less(top, set1(stats.max), set1(static_cast<float>(n)), block));
  float first = firsts[0];
  for (int i = 1; i < 16; ++i) first = firsts[i] < first ? firsts[i] : first;
  for (int id = static_cast<int>(first); id < n; ++id) {
    if (logits[id] != stats.max) continue;
    stats.argmax = id;
    break;
  }
  return stats;
}

float log_sum_exp(const float* logits, int n, float top) {
  F32x16 sum = zero();
  Blocks<64> blocks{logits, n, {}};
  for (int first = 0; first < n; first += 64) {
    const float* x = blocks.at(first);
    FOREBAY_UNROLL
    for (int i = 0; i < 64; i += 16) sum = add(sum, exp(sub(load(x + i), set1(top))));
  }
  return top + static_cast<float>(log(static_cast<double>(reduce_add(sum))));
}

int at_least(const ScaledRow& row, int from, float bar, std::int32_t* ids, int room, int* found) {
  const F32x16 factor = set1(row.factor), low = set1(bar);
  Blocks<64> blocks{row.logits, row.n, {}};
  int first = from, count = 0;
  for (; first < row.n && count + 64 <= room; first += 64) {
    const float* x = blocks.at(first);
    if (all_below(x, factor, low)) continue;
    for (int i = 0; i < 64; i += 16) {
      unsigned lanes = ~less_mask(mul(load(x + i), factor), low) & kAllLanes;
      for (; lanes; lanes &= lanes - 1) {
        const int id = first + i + __builtin_ctz(lanes);
        if (id < row.n) ids[count++] = id;
      }
    }
  }
  *found = count;
  return first < row.n ? first : row.n;
}

void weights(const ScaledRow& row, const std::int32_t* ids, int count, float* w) {
  float held[16] = {};
  for (int first = 0; first < count; first += 16) {
    const int n = count - first < 16 ? count - first : 16;
    for (int i = 0; i < n; ++i) held[i] = row.logits[ids[first + i]];
    store_n(w + first, exp(sub(mul(load(held), set1(row.factor)), set1(row.top))), n);
  }
}

std::uint64_t mass_before(const ScaledRow& row, const Place& end) {
  return mass_at_least(row, 0, end.id, end.scaled) +
         mass_at_least(row, end.id, row.n, nextafterf(end.scaled, INFINITY));
}

int race(const ScaledRow& row, const Place& end, float min_weight, const Draw& draw, int first_token) {
  return RowRace(row, end, min_weight, draw).run(first_token);
}

int race_listed(const std::int32_t* ids, const float* w, int n, const Draw& draw) {
  const Philox philox(draw);
  Race race;
  std::uint32_t counters[16] = {}, words[4][16];
  for (int first = 0; first < n; first += 16) {
    const int count = n - first < 16 ? n - first : 16;
    for (int i = 0; i < count; ++i) counters[i] = static_cast<std::uint32_t>(ids[first + i] / 4);
    I32x16 word[1][4] = {{load_i(counters)}};
    philox.run(word);
    for (int j = 0; j < 4; ++j) store_i(words[j], word[0][j]);
    for (int i = 0; i < count; ++i)
      if (w[first + i] > 0.0f) race.enter(ids[first + i], w[first + i], words[ids[first + i] % 4][i]);
  }
  return race.token;
}

}  // namespace forebay::FOREBAY_ISA
