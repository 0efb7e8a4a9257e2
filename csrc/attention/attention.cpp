#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

constexpr int kGroups = kSegmentKeys / 16;  // a segment's keys, 16 lanes at a time
constexpr int kWidenedQueries = 12;         // with more queries than this, a segment is widened to f32 once for all

struct Span {
  int begin, end;
  bool operator==(const Span& other) const { return begin == other.begin && end == other.end; }
};

int least(int a, int b) { return a < b ? a : b; }
int most(int a, int b) { return a > b ? a : b; }

template <KVFormat F>
constexpr std::size_t kItem = F == KVFormat::f32   ? 4
                              : F == KVFormat::f16 ? 2
                                                   : 1;

template <KVFormat F>
F32x16 widened(const std::uint8_t* p) {
  if constexpr (F == KVFormat::f32) return load(reinterpret_cast<const float*>(p));
  if constexpr (F == KVFormat::f16) return load_f16(reinterpret_cast<const std::uint16_t*>(p));
  if constexpr (F == KVFormat::i8) return load_i8_f32(reinterpret_cast<const std::int8_t*>(p));
}

// The first n <= 16 elements, the other lanes 0.
template <KVFormat F>
F32x16 widened_n(const std::uint8_t* p, int n) {
  if (n == 16) return widened<F>(p);
  if constexpr (F == KVFormat::f32) return load_n(reinterpret_cast<const float*>(p), n);
  if constexpr (F == KVFormat::f16) return load_f16_n(reinterpret_cast<const std::uint16_t*>(p), n);
  std::int8_t held[16] = {};
  std::memcpy(held, p, static_cast<std::size_t>(n));
  return load_i8_f32(held);
}

// A segment's K and V of one kv head, per 16 keys: keys[g] + d * key_stride is dimension d of 16 keys, values[g] +
// i * value_stride the row of key i. The scales (int8 only, else null) have one float per key.
struct View {
  const std::uint8_t *keys[kGroups], *values[kGroups];
  const float *key_scale[kGroups], *value_scale[kGroups];
  std::size_t key_stride, value_stride;
};

// Per-thread scratch, see attention_scratch(). dims is head_dim rounded up to 16.
struct Scratch {
  int dims;
  float* keys;    // [head_dim][64], a segment gathered or widened
  float* values;  // [64][dims]
  float* gathered_keys;
  float* gathered_values;
  float* scales;  // [2][64]
  float* scores;  // [kQueryTile][64]
  float* state;
};

Scratch scratch_of(const AttentionArgs& args, float* at) {
  const int dims = (args.cache.head_dim + 15) / 16 * 16;
  const std::size_t segment = static_cast<std::size_t>(dims) * kSegmentKeys;
  float* rest = at + 4 * segment;
  return {dims,
          at,
          at + segment,
          at + 2 * segment,
          at + 3 * segment,
          rest,
          rest + 2 * kSegmentKeys,
          rest + (2 + kMostQueryTile) * kSegmentKeys};
}

const std::uint8_t* head_of(const AttentionArgs& args, const AttentionTile& tile, const std::uint8_t* cache,
                            int kv_head, int key) {
  const std::size_t block = static_cast<std::size_t>(tile.block_table[key / args.cache.block_size]);
  return cache + (block * args.cache.kv_heads + kv_head) * args.cache.head_bytes;
}

std::size_t scale_bytes(const KVLayer& cache) {
  return cache.format == KVFormat::i8 ? static_cast<std::size_t>(cache.block_size) * sizeof(float) : 0;
}

// Blocks of whole 16s: K and V are read where they lie. Groups without a seen key borrow the place of one that has:
// their blocks may be missing, and what comes of them is masked.
template <KVFormat F>
View view_in_place(const AttentionArgs& args, const AttentionTile& tile, int kv_head, int first, Span span) {
  const KVLayer& cache = args.cache;
  const std::size_t size = static_cast<std::size_t>(cache.block_size), codes = scale_bytes(cache);
  const std::size_t row = static_cast<std::size_t>(cache.head_dim) * kItem<F>;
  View view{{}, {}, {}, {}, size * kItem<F>, row};
  for (int g = 0; g < kGroups; ++g) {
    const int seen = most(least(g, (span.end - 1) / 16), span.begin / 16);
    const int key = first + seen * 16;
    const std::size_t offset = static_cast<std::size_t>(key % cache.block_size);
    const std::uint8_t* k = head_of(args, tile, cache.k, kv_head, key);
    const std::uint8_t* v = head_of(args, tile, cache.v, kv_head, key);
    view.keys[g] = k + codes + offset * kItem<F>;
    view.values[g] = v + codes + offset * row;
    if constexpr (F == KVFormat::i8) {
      view.key_scale[g] = reinterpret_cast<const float*>(k) + offset;
      view.value_scale[g] = reinterpret_cast<const float*>(v) + offset;
    }
  }
  return view;
}

// Blocks of any other size: the seen keys are copied together first.
template <KVFormat F>
View view_gathered(const AttentionArgs& args, const AttentionTile& tile, int kv_head, int first, Span span,
                   const Scratch& s) {
  const KVLayer& cache = args.cache;
  const std::size_t size = static_cast<std::size_t>(cache.block_size), codes = scale_bytes(cache);
  const std::size_t dims = static_cast<std::size_t>(cache.head_dim), row = dims * kItem<F>;
  std::uint8_t* keys = reinterpret_cast<std::uint8_t*>(s.gathered_keys);
  std::uint8_t* values = reinterpret_cast<std::uint8_t*>(s.gathered_values);
  for (int j = span.begin; j < span.end; ++j) {
    const std::size_t offset = static_cast<std::size_t>((first + j) % cache.block_size);
    const std::uint8_t* k = head_of(args, tile, cache.k, kv_head, first + j);
    const std::uint8_t* v = head_of(args, tile, cache.v, kv_head, first + j);
    for (std::size_t d = 0; d < dims; ++d)
      std::memcpy(keys + (d * kSegmentKeys + j) * kItem<F>, k + codes + (d * size + offset) * kItem<F>, kItem<F>);
    std::memcpy(values + j * row, v + codes + offset * row, row);
    if constexpr (F == KVFormat::i8) {
      std::memcpy(s.scales + j, k + offset * sizeof(float), sizeof(float));
      std::memcpy(s.scales + kSegmentKeys + j, v + offset * sizeof(float), sizeof(float));
    }
  }
  View view{{}, {}, {}, {}, kSegmentKeys * kItem<F>, row};
  for (int g = 0; g < kGroups; ++g) {
    view.keys[g] = keys + g * 16 * kItem<F>;
    view.values[g] = values + g * 16 * row;
    if constexpr (F == KVFormat::i8) {
      view.key_scale[g] = s.scales + g * 16;
      view.value_scale[g] = s.scales + kSegmentKeys + g * 16;
    }
  }
  return view;
}

// The same segment as f32 in scratch, for tiles whose queries would widen it many times over.
template <KVFormat F>
View view_widened(const AttentionArgs& args, const View& from, Span span, const Scratch& s) {
  const int head_dim = args.cache.head_dim;
  View view = from;
  view.key_stride = kSegmentKeys * sizeof(float);
  view.value_stride = static_cast<std::size_t>(s.dims) * sizeof(float);
  for (int g = 0; g < kGroups; ++g) {
    view.keys[g] = reinterpret_cast<const std::uint8_t*>(s.keys + g * 16);
    view.values[g] = reinterpret_cast<const std::uint8_t*>(s.values + g * 16 * s.dims);
    for (int d = 0; d < head_dim; ++d)
      store(s.keys + d * kSegmentKeys + g * 16,
            widened<F>(from.keys[g] + static_cast<std::size_t>(d) * from.key_stride));
  }
  for (int j = span.begin; j < span.end; ++j) {
    const std::uint8_t* row = from.values[j / 16] + static_cast<std::size_t>(j % 16) * from.value_stride;
    for (int d = 0; d < head_dim; d += 16)
      store(s.values + j * s.dims + d,
            widened_n<F>(row + static_cast<std::size_t>(d) * kItem<F>, least(16, head_dim - d)));
  }
  return view;
}

// Up to kQueryTile queries that see the same keys of a segment: their q, their scores, and their running state.
// `ahead`, where a segment is read only once: the next one. Blocks are anywhere in memory and end what streams by
// itself, so scores ask for its keys, and sums for its values, into the cache that has room for both.
struct Queries {
  const View* ahead;
  const float* q[kMostQueryTile];
  float* scores;           // [count][64]
  float *max, *sum, *out;  // state: [count], [count], [count][dims]
};

// scores[j] = (sum over d ascending of q[d] k_j[d]) * scale, one fma chain per key; lanes are keys. An int8 key's own
// scale joins the factor.
template <KVFormat F, int R>
void score(const AttentionArgs& args, const View& view, const Queries& queries) {
  F32x16 sum[R][kGroups];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < kGroups; ++g) sum[r][g] = zero();
  const std::uint8_t* at[kGroups];
  for (int g = 0; g < kGroups; ++g) at[g] = view.keys[g];
  for (int d = 0; d < args.cache.head_dim; ++d) {
    F32x16 key[kGroups];
    FOREBAY_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      key[g] = widened<F>(at[g]);
      at[g] += view.key_stride;
      if (queries.ahead)
        __builtin_prefetch(queries.ahead->keys[g] + static_cast<std::size_t>(d) * view.key_stride, 0, 2);
    }
    FOREBAY_UNROLL
    for (int r = 0; r < R; ++r) {
      const F32x16 query = set1(queries.q[r][d]);
      FOREBAY_UNROLL
      for (int g = 0; g < kGroups; ++g) sum[r][g] = fma(query, key[g], sum[r][g]);
    }
  }
  for (int g = 0; g < kGroups; ++g) {
    const F32x16 factor = view.key_scale[g] ? mul(load(view.key_scale[g]), set1(args.scale)) : set1(args.scale);
    for (int r = 0; r < R; ++r) store(queries.scores + r * kSegmentKeys + g * 16, mul(sum[r][g], factor));
  }
}

// Turns 64 scores into exp(score - max) of the keys in `span`, 0 elsewhere (whatever the score there was), and gives
// their sum. An int8 value's own scale joins its weight after that.
float softmax_weights(const View& view, Span span, float* scores, float* max_out) {
  for (int j = 0; j < span.begin; ++j) scores[j] = -INFINITY;
  for (int j = span.end; j < kSegmentKeys; ++j) scores[j] = -INFINITY;
  F32x16 part[kGroups];
  for (int g = 0; g < kGroups; ++g) part[g] = load(scores + g * 16);
  const float m = reduce_max(max(max(part[0], part[1]), max(part[2], part[3])));
  for (int g = 0; g < kGroups; ++g) {
    part[g] = exp(sub(part[g], set1(m)));
    store(scores + g * 16, view.value_scale[g] ? mul(part[g], load(view.value_scale[g])) : part[g]);
  }
  *max_out = m;
  return reduce_add(add(add(add(part[0], part[1]), part[2]), part[3]));
}

// How a segment joins what is before it: M = max, L = fma(L, old, l * now), O = fma(O, old, o * now).
struct Join {
  float old[16], now[16];
};

// m, l: [count] of the segment, count <= 16. Lanes are queries.
Join join(const float* m, const float* l, int count, float* max_state, float* sum_state) {
  Join out;
  const F32x16 before = load_n(max_state, count), here = load_n(m, count);
  const F32x16 top = max(before, here);
  const F32x16 old = exp(sub(before, top)), now = exp(sub(here, top));
  store(out.old, old);
  store(out.now, now);
  store_n(sum_state, fma(load_n(sum_state, count), old, mul(load_n(l, count), now)), count);
  store_n(max_state, top, count);
  return out;
}

// Folds the segment's outputs into the rows', C chunks of 16 dimensions from d: out[d] = sum over keys of `span`
// ascending of weight_j v_j[d], one fma chain per d. `tail`: how many dimensions of the (one) chunk there are.
template <KVFormat F, int R, int C>
void weigh(const View& view, Span span, const Queries& queries, const Join* joined, int dims, int d, int tail) {
  F32x16 sum[R][C];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) sum[r][c] = zero();
  for (int g = span.begin / 16; g * 16 < span.end; ++g) {
    const int begin = most(span.begin, g * 16), end = least(span.end, g * 16 + 16);
    const std::uint8_t* row = view.values[g] + static_cast<std::size_t>(begin - g * 16) * view.value_stride +
                              static_cast<std::size_t>(d) * kItem<F>;
    for (int j = begin; j < end; ++j, row += view.value_stride) {
      if (queries.ahead)
        for (int i = 0; i < kGroups; ++i)
          __builtin_prefetch(queries.ahead->values[i] + static_cast<std::size_t>(d + j) * 16 * kItem<F>, 0, 2);
      F32x16 value[C];
      FOREBAY_UNROLL
      for (int c = 0; c < C; ++c) value[c] = C == 1 ? widened_n<F>(row, tail) : widened<F>(row + c * 16 * kItem<F>);
      FOREBAY_UNROLL
      for (int r = 0; r < R; ++r) {
        const F32x16 weight = set1(queries.scores[r * kSegmentKeys + j]);
        FOREBAY_UNROLL
        for (int c = 0; c < C; ++c) sum[r][c] = fma(weight, value[c], sum[r][c]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      float* at = queries.out + r * dims + d + c * 16;
      store(at, joined ? fma(load(at), set1(joined->old[r]), mul(sum[r][c], set1(joined->now[r]))) : sum[r][c]);
    }
}

// R queries against one segment. `is_first`: nothing came before, the state is written, not joined.
template <KVFormat F, int R>
void attend(const AttentionArgs& args, const View& view, Span span, bool is_first, const Queries& queries, int dims) {
  score<F, R>(args, view, queries);
  float m[R], l[R];
  for (int r = 0; r < R; ++r) l[r] = softmax_weights(view, span, queries.scores + r * kSegmentKeys, m + r);
  Join joined;
  if (is_first) {
    std::memcpy(queries.max, m, sizeof m);
    std::memcpy(queries.sum, l, sizeof l);
  } else {
    joined = join(m, l, R, queries.max, queries.sum);
  }
  const Join* before = is_first ? nullptr : &joined;
  const int head_dim = args.cache.head_dim;
  int d = 0;
  for (; d + 64 <= head_dim; d += 64) weigh<F, R, 4>(view, span, queries, before, dims, d, 16);
  for (; d < head_dim; d += 16) weigh<F, R, 1>(view, span, queries, before, dims, d, least(16, head_dim - d));
}

template <KVFormat F, int R = kQueryTile>
void attend_any(int count, const AttentionArgs& args, const View& view, Span span, bool is_first,
                const Queries& queries, int dims) {
  if (count == R) return attend<F, R>(args, view, span, is_first, queries, dims);
  if constexpr (R > 1) attend_any<F, R - 1>(count, args, view, span, is_first, queries, dims);
}

// One (tile, kv head): its queries are rows x heads of the group, and its state is max [padded], sum [padded], out
// [queries][dims].
class Item {
 public:
  Item(const AttentionArgs& args, const AttentionTile& tile, int kv_head, float* scratch)
      : args_(args),
        tile_(tile),
        kv_head_(kv_head),
        heads_(args.heads / args.cache.kv_heads),
        rows_(tile.row_end - tile.row_begin),
        scratch_(scratch_of(args, scratch)) {}

  float* scratch_state() const { return scratch_.state; }

  // `ahead`: the place that comes next, or null.
  void attend_segment(int segment, bool is_first, float* state, const SegmentRange::Next* ahead) const {
    switch (args_.cache.format) {
      case KVFormat::f32:
        return attend_as<KVFormat::f32>(segment, is_first, state, ahead);
      case KVFormat::f16:
        return attend_as<KVFormat::f16>(segment, is_first, state, ahead);
      case KVFormat::i8:
        return attend_as<KVFormat::i8>(segment, is_first, state, ahead);
    }
  }

  // The state of a later segment, computed apart, joins `state`.
  void join_segment(const float* segment_state, float* state) const {
    const int count = queries();
    for (int first = 0; first < count; first += 16) {
      const int n = least(16, count - first);
      const Join joined =
          join(segment_state + first, segment_state + padded() + first, n, state + first, state + padded() + first);
      for (int i = 0; i < n; ++i)
        for (int d = 0; d < scratch_.dims; d += 16) {
          const std::size_t at = static_cast<std::size_t>(2 * padded() + (first + i) * scratch_.dims + d);
          store(state + at,
                fma(load(state + at), set1(joined.old[i]), mul(load(segment_state + at), set1(joined.now[i]))));
        }
    }
  }

  void finish(const float* state) const {
    const int head_dim = args_.cache.head_dim;
    for (int i = 0; i < queries(); ++i) {
      const float* total = state + 2 * padded() + i * scratch_.dims;
      float* out = args_.out + query_offset(i);
      for (int d = 0; d < head_dim; d += 16)
        store_n(out + d, div(load(total + d), set1(state[padded() + i])), least(16, head_dim - d));
    }
  }

 private:
  int queries() const { return rows_ * heads_; }
  int padded() const { return (queries() + 15) / 16 * 16; }
  std::size_t query_offset(int query) const {
    const std::size_t row = static_cast<std::size_t>(tile_.row_begin + query / heads_);
    return (row * args_.heads + kv_head_ * heads_ + query % heads_) * args_.cache.head_dim;
  }
  int begin_of(int row) const { return args_.window ? most(0, tile_.position + row - args_.window + 1) : 0; }

  // What a row sees of the 64 keys from `first`; empty when begin >= end.
  Span span_of(int row, int first) const {
    return {most(begin_of(row) - first, 0), least(tile_.position + row + 1 - first, kSegmentKeys)};
  }
  bool starts_in(int row, int first) const { return begin_of(row) / kSegmentKeys * kSegmentKeys == first; }

  template <KVFormat F>
  void attend_as(int segment, bool is_apart, float* state, const SegmentRange::Next* next) const {
    const int first = segment * kSegmentKeys;
    const Span all{most(begin_of(0) - first, 0), least(tile_.position + rows_ - first, kSegmentKeys)};
    const View view = args_.cache.block_size % 16 == 0 ? view_in_place<F>(args_, tile_, kv_head_, first, all)
                                                       : view_gathered<F>(args_, tile_, kv_head_, first, all, scratch_);
    if (queries() > kWidenedQueries && F != KVFormat::f32)
      return attend_rows<KVFormat::f32>(view_widened<F>(args_, view, all, scratch_), nullptr, first, is_apart, state);
    if (!next || args_.cache.block_size % 16 || queries() > kWidenedQueries)
      return attend_rows<F>(view, nullptr, first, is_apart, state);
    const int begin = next->segment * kSegmentKeys, seen = args_.window ? next->tile.position - args_.window + 1 : 0;
    const int end = next->tile.position + next->tile.row_end - next->tile.row_begin;
    const Span wanted{most(seen - begin, 0), least(end - begin, kSegmentKeys)};
    const View ahead = view_in_place<F>(args_, next->tile, next->kv_head, begin, wanted);
    attend_rows<F>(view, &ahead, first, is_apart, state);
  }

  // Rows that see the same keys go together, others one by one: a row's sums run over what it sees and nothing else.
  template <KVFormat F>
  void attend_rows(const View& view, const View* ahead, int first, bool is_apart, float* state) const {
    for (int row = 0; row < rows_;) {
      const Span span = span_of(row, first);
      const bool is_first = is_apart || starts_in(row, first);
      int end = row + 1;
      while (end < rows_ && span_of(end, first) == span && (is_apart || starts_in(end, first)) == is_first) ++end;
      if (span.begin < span.end)
        for (int query = row * heads_; query < end * heads_; query += kQueryTile)
          attend_tile<F>(view, ahead, span, is_first, query, least(kQueryTile, end * heads_ - query), state);
      row = end;
    }
  }

  template <KVFormat F>
  void attend_tile(const View& view, const View* ahead, Span span, bool is_first, int query, int count,
                   float* state) const {
    Queries queries{ahead,
                    {},
                    scratch_.scores,
                    state + query,
                    state + padded() + query,
                    state + 2 * padded() + query * scratch_.dims};
    for (int i = 0; i < count; ++i) queries.q[i] = args_.q + query_offset(query + i);
    attend_any<F>(count, args_, view, span, is_first, queries, scratch_.dims);
  }

  const AttentionArgs& args_;
  const AttentionTile& tile_;
  const int kv_head_, heads_, rows_;
  const Scratch scratch_;
};

template <class T>
void scatter_key(const T* from, int n, std::size_t stride, std::uint8_t* to) {
  for (int i = 0; i < n; ++i) std::memcpy(to + static_cast<std::size_t>(i) * stride * sizeof(T), from + i, sizeof(T));
}

// The scale of one int8 row, as activations are quantized; NaN when a value is not finite.
float row_scale(const float* x, int n) {
  I32x16 largest = set1_i(0);
  for (int d = 0; d < n; d += 16) largest = max_i(largest, bits(magnitude(load_n(x + d, least(16, n - d)))));
  const std::int32_t word = reduce_max_i(largest);
  float amax;
  std::memcpy(&amax, &word, 4);
  return word < 0x7f800000 ? amax / 127.0f : __builtin_nanf("");
}

void quantize_16(const float* x, int n, float scale, std::int8_t* out) {
  const bool is_normal = scale >= FLT_MIN;  // NaN too is not
  store_i8(out, is_normal ? round_i(mul(load_n(x, n), set1(1.0f / scale))) : set1_i(0));
}

}  // namespace

void kv_write(const KVLayer& cache, const float* k, const float* v, int slot) {
  const int n = cache.head_dim;
  const std::size_t size = static_cast<std::size_t>(cache.block_size), codes = scale_bytes(cache);
  const std::size_t block = static_cast<std::size_t>(slot) / size, offset = static_cast<std::size_t>(slot) % size;
  for (int head = 0; head < cache.kv_heads; ++head, k += n, v += n) {
    const std::size_t base = (block * cache.kv_heads + head) * cache.head_bytes;
    std::uint8_t *key = cache.k + base, *value = cache.v + base;
    float key_scale = 0.0f, value_scale = 0.0f;
    if (cache.format == KVFormat::i8) {
      key_scale = row_scale(k, n);
      value_scale = row_scale(v, n);
      std::memcpy(key + offset * sizeof(float), &key_scale, sizeof(float));
      std::memcpy(value + offset * sizeof(float), &value_scale, sizeof(float));
    }
    key += codes;
    value += codes;
    for (int d = 0; d < n; d += 16) {
      const int count = least(16, n - d);
      const std::size_t at = static_cast<std::size_t>(d), row = offset * static_cast<std::size_t>(n) + at;
      if (cache.format == KVFormat::f32) {
        scatter_key(k + d, count, size, key + (at * size + offset) * 4);
        std::memcpy(value + row * 4, v + d, static_cast<std::size_t>(count) * 4);
      } else if (cache.format == KVFormat::f16) {
        std::uint16_t half[16];
        store_f16(half, load_n(k + d, count));
        scatter_key(half, count, size, key + (at * size + offset) * 2);
        store_f16_n(reinterpret_cast<std::uint16_t*>(value) + row, load_n(v + d, count), count);
      } else {
        std::int8_t code[16];
        quantize_16(k + d, count, key_scale, code);
        scatter_key(code, count, size, key + at * size + offset);
        quantize_16(v + d, count, value_scale, code);
        std::memcpy(value + row, code, static_cast<std::size_t>(count));
      }
    }
  }
}

// All query heads of one kv head for the rows of a tile, over segments [begin, end) of it. Segments of 64 keys anchored
// at position 0, joined ascending; each row uses only segments it sees, so neither tiles, blocks, chunks nor threads
// can change its bits.
void attention(const AttentionArgs& args, const AttentionTile& tile, int kv_head, const SegmentRange& range,
               float* scratch) {
  const Item item(args, tile, kv_head, scratch);
  float* state = range.states ? range.states : item.scratch_state();
  for (int segment = range.begin; segment < range.end; ++segment) {
    const bool is_apart = range.begin > range.first;
    if (is_apart) state = range.states + static_cast<std::size_t>(segment - range.first) * range.state_floats;
    const SegmentRange::Next own{tile, kv_head, segment + 1};
    item.attend_segment(segment, is_apart, state, segment + 1 < range.end ? &own : range.then);
  }
  if (!range.states) item.finish(state);
}

void attention_join(const AttentionArgs& args, const AttentionTile& tile, int kv_head, const SegmentRange& range) {
  const Item item(args, tile, kv_head, range.states);  // joining needs no scratch
  for (int segment = range.begin; segment < range.end; ++segment)
    item.join_segment(range.states + static_cast<std::size_t>(segment - range.first) * range.state_floats,
                      range.states);
  item.finish(range.states);
}

}  // namespace forebay::FOREBAY_ISA
