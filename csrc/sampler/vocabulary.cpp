// What the sampler does over the whole vocabulary of one row.
#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

// The last n < 16 values, the other lanes -inf (weightless).
F32x16 load_tail(const float* p, int n) {
  float held[16];
  for (int i = 0; i < 16; ++i) held[i] = i < n ? p[i] : -INFINITY;
  return load(held);
}

F32x16 load_padded(const float* p, int i, int n) { return i + 16 <= n ? load(p + i) : load_tail(p + i, n - i); }

I32x16 splat(std::uint32_t word) { return set1_i(static_cast<std::int32_t>(word)); }

// Philox4x32-10 (Salmon et al., SC 2011) of 16 counters, one a lane: words[4 * i + j] is word j of counters[i].
void philox_16(const std::uint32_t* counters, const Draw& draw, std::uint32_t* words) {
  I32x16 word[4] = {load_i(counters), splat(draw.output_position), splat(draw.child), splat(0)};
  std::uint32_t key0 = static_cast<std::uint32_t>(draw.seed), key1 = static_cast<std::uint32_t>(draw.seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    I32x16 high0, low0, high2, low2;
    multiply(word[0], 0xD2511F53u, &high0, &low0);
    multiply(word[2], 0xCD9E8D57u, &high2, &low2);
    word[0] = xor_i(xor_i(high2, word[1]), splat(key0));
    word[2] = xor_i(xor_i(high0, word[3]), splat(key1));
    word[1] = low2;
    word[3] = low0;
  }
  std::uint32_t lanes[4][16];
  for (int j = 0; j < 4; ++j) store_i(lanes[j], word[j]);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) words[4 * i + j] = lanes[j][i];
}

// The exponential race: the smallest -log(1 - u) / weight wins, ties to the lowest id.
struct Race {
  double best = INFINITY;
  int token = -1;

  void enter(int id, float weight, std::uint32_t word) {
    const double u = (word + 0.5) * 0x1p-32, w = weight;
    if (u > best * w * 1.0000001) return;  // -log(1 - u) >= u: it cannot win, and the logarithm is saved
    const double arrival = -log(1.0 - u) / w;
    if (arrival < best || (arrival == best && id < token)) {
      best = arrival;
      token = id;
    }
  }

  // Whether one of 64 tokens might still win, by a lower bound of u (its first 24 bits) and float rounding's margin.
  bool may_change(const float* weights, const std::uint32_t* words) const {
    const F32x16 limit = set1(static_cast<float>(best) * 1.00001f);
    F32x16 lead = set1(-INFINITY);
    for (int i = 0; i < 64; i += 16) {
      const I32x16 high = and_i(shift_right<8>(load_i(words + i)), set1_i(0xffffff));
      lead = max(sub(mul(limit, load(weights + i)), mul(to_f32(high), set1(0x1p-24f))), lead);
    }
    return reduce_max(lead) >= 0.0f;
  }
};

}  // namespace

RowStats row_stats(const float* logits, int n) {
  F32x16 top = set1(-INFINITY);
  bool has_nan = false;
  for (int i = 0; i < n; i += 16) {
    const F32x16 x = load_padded(logits, i, n);
    has_nan |= any_nan(x);
    top = max(x, top);
  }
  RowStats stats{reduce_max(top), 0, has_nan};
  for (int i = 0; i < n; i += 16) {
    const unsigned equal = equal_mask(load_padded(logits, i, n), set1(stats.max));
    if (equal == 0) continue;
    stats.argmax = i + __builtin_ctz(equal);
    break;
  }
  if (stats.argmax >= n) stats.argmax = 0;
  return stats;
}

float log_sum_exp(const float* logits, int n, float top) {
  F32x16 sum = zero();
  for (int i = 0; i < n; i += 16) sum = add(sum, exp(sub(load_padded(logits, i, n), set1(top))));
  return top + static_cast<float>(log(static_cast<double>(reduce_add(sum))));
}

void weights(const float* logits, int n, float inverse_temperature, float max_scaled, float* w) {
  for (int i = 0; i < n; i += 16) {
    const F32x16 scaled = mul(load_padded(logits, i, n), set1(inverse_temperature));
    store_n(w + i, exp(sub(scaled, set1(max_scaled))), n - i < 16 ? n - i : 16);
  }
}

std::uint64_t fixed_total(const float* w, int n) {
  std::uint64_t total = 0;
  for (int i = 0; i < n; ++i) total += static_cast<std::uint64_t>(w[i] * 0x1p32f);
  return total;
}

int next_at_least(const float* x, int from, int n, float factor, float bar) {
  for (int i = from; i < n; i += 16) {
    const unsigned within = n - i < 16 ? (1u << (n - i)) - 1u : 0xffffu;
    const unsigned found = ~less_mask(mul(load_padded(x, i, n), set1(factor)), set1(bar)) & within;
    if (found) return i + __builtin_ctz(found);
  }
  return n;
}

void race(const float* w, int n, float min_weight, const Draw& draw, int* token) {
  Race race;
  std::uint32_t counters[16], words[64];
  for (int first = 0; first < n; first += 64) {
    for (int i = 0; i < 16; ++i) counters[i] = static_cast<std::uint32_t>(first / 4 + i);
    philox_16(counters, draw, words);
    if (first + 64 <= n && !race.may_change(w + first, words)) continue;
    for (int i = 0; i < 64 && first + i < n; ++i) {
      const float weight = w[first + i];
      if (weight > 0.0f && weight >= min_weight) race.enter(first + i, weight, words[i]);
    }
  }
  *token = race.token;
}

void race_listed(const std::int32_t* ids, const float* w, int n, const Draw& draw, int* token) {
  Race race;
  std::uint32_t counters[16] = {}, words[64];
  for (int first = 0; first < n; first += 16) {
    const int count = n - first < 16 ? n - first : 16;
    for (int i = 0; i < count; ++i) counters[i] = static_cast<std::uint32_t>(ids[first + i] / 4);
    philox_16(counters, draw, words);
    for (int i = 0; i < count; ++i)
      if (w[first + i] > 0.0f) race.enter(ids[first + i], w[first + i], words[4 * i + ids[first + i] % 4]);
  }
  *token = race.token;
}

}  // namespace forebay::FOREBAY_ISA
