#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

struct Span {
  int begin, end;
};

int least(int a, int b) { return a < b ? a : b; }
int most(int a, int b) { return a > b ? a : b; }

// Keys that a query at `position` sees.
Span visible(const AttentionArgs& args, int position) {
  return {args.window ? most(0, position - args.window + 1) : 0, position + 1};
}

// Per-tile scratch, see attention_scratch(). dims is head_dim rounded up to 16; padding lanes stay zero or unused.
struct Scratch {
  int dims;
  float* keys;    // [dims][64], transposed
  float* values;  // [64][dims]
  float* scores;  // [64]
  float* state;   // per query row: max, sum, then dims outputs
};

const char* cache_row(const AttentionArgs& args, const AttentionTile& tile, const void* cache, int kv_head, int key) {
  const std::size_t block = static_cast<std::size_t>(tile.block_table[key / args.block_size]);
  const std::size_t slot = block * args.block_size + key % args.block_size;
  const std::size_t element = (slot * args.kv_heads + kv_head) * args.head_dim;
  return static_cast<const char*>(cache) + element * (args.is_f16 ? 2 : 4);
}

F32x16 load_cached(const AttentionArgs& args, const char* row, int d) {
  const int n = least(16, args.head_dim - d);
  if (args.is_f16) return load_f16_n(reinterpret_cast<const std::uint16_t*>(row) + d, n);
  return load_n(reinterpret_cast<const float*>(row) + d, n);
}

// Keys [span.begin, span.end) of the 64-key segment at `first` into scratch, as f32. Other keys are never touched: they
// may be unwritten, or in a block that is not there.
void load_segment(const AttentionArgs& args, const AttentionTile& tile, int kv_head, int first, Span span, Scratch& s) {
  for (int group = span.begin / 16 * 16; group < span.end; group += 16) {
    const char* rows[16];
    for (int i = 0; i < 16; ++i) {
      const int key = first + group + i;
      const bool seen = group + i >= span.begin && group + i < span.end;
      rows[i] = seen ? cache_row(args, tile, args.k, kv_head, key) : nullptr;
      if (!seen) continue;
      const char* value = cache_row(args, tile, args.v, kv_head, key);
      for (int d = 0; d < s.dims; d += 16) store(s.values + (group + i) * s.dims + d, load_cached(args, value, d));
    }
    for (int d = 0; d < s.dims; d += 16) {
      F32x16 block[16];
      for (int i = 0; i < 16; ++i) block[i] = rows[i] ? load_cached(args, rows[i], d) : zero();
      transpose(block);
      for (int i = 0; i < 16; ++i) store(s.keys + (d + i) * kSegmentKeys + group, block[i]);
    }
  }
}

// scores[j] = (sum over d ascending of q[d] k_j[d]) * scale, one fma chain per key; lanes are keys.
void score(const AttentionArgs& args, const float* q, Scratch& s) {
  F32x16 sum[4] = {zero(), zero(), zero(), zero()};
  for (int d = 0; d < args.head_dim; ++d) {
    const F32x16 query = set1(q[d]);
    FOREBAY_UNROLL
    for (int i = 0; i < 4; ++i) sum[i] = fma(query, load(s.keys + d * kSegmentKeys + i * 16), sum[i]);
  }
  for (int i = 0; i < 4; ++i) store(s.scores + i * 16, mul(sum[i], set1(args.scale)));
}

// Turns scores into exp(score - max) of the keys in `span`, 0 elsewhere (whatever the score there was).
float softmax_weights(Span span, Scratch& s, float* max_out) {
  for (int j = 0; j < span.begin; ++j) s.scores[j] = -INFINITY;
  for (int j = span.end; j < kSegmentKeys; ++j) s.scores[j] = -INFINITY;
  F32x16 part[4];
  for (int i = 0; i < 4; ++i) part[i] = load(s.scores + i * 16);
  const float m = reduce_max(max(max(part[0], part[1]), max(part[2], part[3])));
  for (int i = 0; i < 4; ++i) {
    part[i] = exp(sub(part[i], set1(m)));
    store(s.scores + i * 16, part[i]);
  }
  *max_out = m;
  return reduce_add(add(add(add(part[0], part[1]), part[2]), part[3]));
}

// out[d] = sum over keys of `span` ascending of weight_j v_j[d], one fma chain per d, for C chunks of 16 from d.
template <int C>
void weigh(Span span, const Scratch& s, int d, F32x16 (&out)[C]) {
  for (int c = 0; c < C; ++c) out[c] = zero();
  for (int j = span.begin; j < span.end; ++j) {
    const F32x16 weight = set1(s.scores[j]);
    FOREBAY_UNROLL
    for (int c = 0; c < C; ++c) out[c] = fma(weight, load(s.values + j * s.dims + d + c * 16), out[c]);
  }
}

// Folds one segment's outputs into the row's: O = fma(O, a, o b); the first segment is copied.
template <int C>
void fold(Span span, const Scratch& s, int d, bool first, F32x16 a, F32x16 b, float* total) {
  F32x16 out[C];
  weigh<C>(span, s, d, out);
  for (int c = 0; c < C; ++c) {
    float* at = total + d + c * 16;
    store(at, first ? out[c] : fma(load(at), a, mul(out[c], b)));
  }
}

// One query row and head against the segment in scratch. state: running max M, sum L, outputs O.
void attend_segment(const AttentionArgs& args, const float* q, Span span, bool first, Scratch& s, float* state) {
  score(args, q, s);
  float m;
  const float l = softmax_weights(span, s, &m);
  F32x16 a = zero(), b = zero();
  if (first) {
    state[0] = m;
    state[1] = l;
  } else {
    const float top = state[0] > m ? state[0] : m;
    a = exp(sub(set1(state[0]), set1(top)));
    b = exp(sub(set1(m), set1(top)));
    float scale_old[16], scale_new[16];
    store(scale_old, a);
    store(scale_new, b);
    state[1] = ::fmaf(state[1], scale_old[0], l * scale_new[0]);
    state[0] = top;
  }
  int d = 0;
  for (; d + 64 <= s.dims; d += 64) fold<4>(span, s, d, first, a, b, state + 2);
  for (; d < s.dims; d += 16) fold<1>(span, s, d, first, a, b, state + 2);
}

}  // namespace

// All query heads of one kv head for the rows of a tile. Segments of 64 keys anchored at position 0, ascending; each
// row uses only segments it sees, so neither tiles, blocks, chunks nor threads can change its bits.
void attention(const AttentionArgs& args, const AttentionTile& tile, int kv_head, float* scratch) {
  const int heads = args.heads / args.kv_heads, rows = tile.row_end - tile.row_begin;
  const int dims = (args.head_dim + 15) / 16 * 16, stride = dims + 16;
  Scratch s{dims, scratch, scratch + dims * kSegmentKeys, scratch + 2 * dims * kSegmentKeys,
            scratch + 2 * dims * kSegmentKeys + kSegmentKeys};
  const int begin = visible(args, tile.position).begin, end = tile.position + rows;
  for (int first = begin / kSegmentKeys * kSegmentKeys; first < end; first += kSegmentKeys) {
    load_segment(args, tile, kv_head, first, {most(begin - first, 0), least(end - first, kSegmentKeys)}, s);
    for (int row = 0; row < rows; ++row) {
      const Span seen = visible(args, tile.position + row);
      const Span span{most(seen.begin - first, 0), least(seen.end - first, kSegmentKeys)};
      if (span.begin >= span.end) continue;
      for (int head = 0; head < heads; ++head) {
        const std::size_t at = (static_cast<std::size_t>(tile.row_begin + row) * args.heads + kv_head * heads + head);
        const bool is_first = seen.begin / kSegmentKeys * kSegmentKeys == first;
        attend_segment(args, args.q + at * args.head_dim, span, is_first, s, s.state + (row * heads + head) * stride);
      }
    }
  }
  for (int row = 0; row < rows; ++row)
    for (int head = 0; head < heads; ++head) {
      const float* state = s.state + (row * heads + head) * stride;
      float* out = args.out + (static_cast<std::size_t>(tile.row_begin + row) * args.heads + kv_head * heads + head) *
                                  args.head_dim;
      for (int d = 0; d < args.head_dim; d += 16)
        store_n(out + d, div(load(state + 2 + d), set1(state[1])), least(16, args.head_dim - d));
    }
}

}  // namespace forebay::FOREBAY_ISA
