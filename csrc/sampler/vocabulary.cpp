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

// Philox4x32-10 (Salmon et al., SC 2011) of 16 consecutive counters: words[4 * i + j] is word j of counter `first` + i.
void philox_16(std::uint32_t first, const Draw& draw, std::uint32_t* words) {
  std::uint32_t a[16], b[16], c[16], d[16];
  for (int i = 0; i < 16; ++i) {
    a[i] = first + static_cast<std::uint32_t>(i);
    b[i] = draw.output_position;
    c[i] = draw.child;
    d[i] = 0;
  }
  std::uint32_t key0 = static_cast<std::uint32_t>(draw.seed), key1 = static_cast<std::uint32_t>(draw.seed >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u)
    for (int i = 0; i < 16; ++i) {
      const std::uint64_t x = std::uint64_t{0xD2511F53u} * a[i], y = std::uint64_t{0xCD9E8D57u} * c[i];
      const std::uint32_t next_a = static_cast<std::uint32_t>(y >> 32) ^ b[i] ^ key0;
      const std::uint32_t next_c = static_cast<std::uint32_t>(x >> 32) ^ d[i] ^ key1;
      b[i] = static_cast<std::uint32_t>(y);
      d[i] = static_cast<std::uint32_t>(x);
      a[i] = next_a;
      c[i] = next_c;
    }
  for (int i = 0; i < 16; ++i) {
    words[4 * i] = a[i];
    words[4 * i + 1] = b[i];
    words[4 * i + 2] = c[i];
    words[4 * i + 3] = d[i];
  }
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
  std::uint32_t words[64];
  for (int first = 0; first < n; first += 64) {
    philox_16(static_cast<std::uint32_t>(first / 4), draw, words);
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
  std::uint32_t words[64];
  for (int i = 0; i < n; ++i) {
    philox_16(static_cast<std::uint32_t>(ids[i] / 4), draw, words);
    if (w[i] > 0.0f) race.enter(ids[i], w[i], words[ids[i] % 4]);
  }
  *token = race.token;
}

}  // namespace forebay::FOREBAY_ISA
