// The table of kernels that every instruction set exports, and the plain structs that cross its border.
// Nothing here may have an inline function or template: these headers are compiled under different machine flags.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay {

constexpr int kLanes = 16;          // SIMD lanes of every instruction set
constexpr int kPanelRows = 32;      // output rows per packed weight panel: two vectors
constexpr int kQuantGroup = 32;     // activations are quantized per this many values along K
constexpr int kSegmentKeys = 64;    // attention softmax segments, anchored at position 0
constexpr int kAttentionTile = 16;  // most rows of one request that share a K/V conversion
constexpr int kMostQueryTile = 8;   // most queries that attention keeps in registers

// How a weight is packed: as floats, or as codes of 4 or 8 bits with a scale per 32 columns. _min: and a minimum. _k:
// scale and minimum are those of a superblock of 256 columns times small factors. u8_halves: the same, a factor per 16
// columns.
enum class Storage { f32, f16, bf16, u4, u4_min, u4_k, u8, u8_min, u8_k, u8_halves };

// A quantized panel is a sequence of superblocks: a head, then `groups` groups of 32 columns.
struct PanelLayout {
  int head_bytes, group_bytes, groups;
};

// By Storage. Head: 32 f16 scales, and for _k 32 f16 minimums. Group: codes as [2][k / 4][16 rows][4] bytes (u4: step s
// in the low, step s + 4 in the high nibbles), then 32 f16 scales and for _min 32 f16 minimums; where there is a head:
// 32 factors of its scales and 32 of its minimums as bytes, u8_halves: 2 x 32 signed factors of its scales.
constexpr PanelLayout kPanelLayouts[] = {
    {0, 0, 0},     {0, 0, 0},    {0, 0, 0},       // float storages: [k][32] elements
    {0, 576, 1},   {0, 640, 1},  {128, 576, 8},   // u4, u4_min, u4_k
    {0, 1088, 1},  {0, 1152, 1}, {128, 1088, 8},  // u8, u8_min, u8_k
    {64, 1088, 8},                                // u8_halves
};

// Panels of 32 output rows, the last one filled up with zeros; columns run inside a panel. A code of a quantized
// storage stands for (code - zero) * scale + minimum, where zero is 8 in u4, 128 in u8 and u8_halves, 0 where there is
// a minimum.
struct PackedWeight {
  Storage storage;
  int rows, columns;
  std::size_t panel_bytes;
  const std::uint8_t* data;
  const float* bias;  // (rows), added after the product; or null
};

// 32 activations of a row: value ~ q * scale.
struct QuantizedGroup {
  std::int8_t q[kQuantGroup];
  float scale;
  float scaled_sum;         // scale * float(sum of q): what a minimum is multiplied with
  std::int32_t start;       // -128 * sum of q: where a dot product with codes of zero point 128 starts
  std::int32_t half_start;  // the same of the first 16
};

// (rows, columns / 32) groups.
struct QuantizedRows {
  QuantizedGroup* groups;
  int columns;
};

enum class Activation { silu, gelu_tanh };

enum class KVFormat { f32, f16, i8 };

// One layer's cache: [num_blocks][kv_heads] parts of head_bytes each. A part of K is [head_dim][block_size], so that 16
// keys' dimension d is one load; one of V is [block_size][head_dim]. In i8, [block_size] f32 scales stand before the
// codes: a row of one token and head is quantized as activations are, value = code * scale.
struct KVLayer {
  std::uint8_t *k, *v;
  KVFormat format;
  int kv_heads, head_dim, block_size;
  std::size_t head_bytes;
};

// One layer's attention. q, out: (tokens, heads * head_dim).
struct AttentionArgs {
  const float* q;
  float* out;
  KVLayer cache;
  int heads;
  int window;  // a query at p sees keys in (p - window, p]; 0 = all up to p
  float scale;
};

// Rows [row_begin, row_end) of one request, at positions `position`, `position` + 1 ...
struct AttentionTile {
  int row_begin, row_end;
  int position;
  const std::int32_t* block_table;
};

// Segments [begin, end) of a tile; `first` is the first that it sees. With `states`, an item is cut over threads: what
// starts at `first` is folded into states[0], each later segment is left apart in states[segment - first], and
// attention_join folds [begin, end) into states[0] and writes the output. Without, the range is the whole item.
// `then`: what this thread computes next, to be fetched meanwhile; or null.
struct SegmentRange {
  int first, begin, end;
  float* states;
  std::size_t state_floats;
  struct Next {
    AttentionTile tile;
    int kv_head, segment;
  };
  const Next* then;
};

constexpr int kTokenGroups = 64;  // group g of a row's tokens: those whose id modulo 64 is g

struct RowStats {
  float max;
  int argmax;  // lowest id with the maximum
  bool has_nan;
  float group_max[kTokenGroups];  // -inf where the group is empty
};

// A row to draw from. Token v weighs exp(logits[v] * factor - top), the best one 1. Its mass is its weight as 32-bit
// fixed point (rounded down), so that sums are exact in any order.
struct ScaledRow {
  const float* logits;
  int n;
  float factor, top;
};

// A place in the order of candidates: logit * factor (`scaled`) descending, then id ascending.
struct Place {
  float scaled;
  int id;
};

// Key of the random draws of one row.
struct Draw {
  std::uint64_t seed;
  std::uint32_t output_position, child;
};

struct Kernels {
  const char* isa;
  void (*quantize)(const float* x, int row_begin, int row_end, const QuantizedRows& out);
  // y (rows, w.rows) = residual + (x w^T + bias) in the panels [panel_begin, panel_end). residual (rows, w.rows)
  // may be null, or y itself.
  void (*linear_quantized)(const PackedWeight& w, const QuantizedRows& x, int rows, int panel_begin, int panel_end,
                           const float* residual, float* y);
  void (*linear_float)(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end,
                       const float* residual, float* y);
  // out = quantize(act_mul(activation, gate(x), up(x))) in the groups of those panels, without anything between them
  // leaving the thread. gate and up have the same shape and a multiple of 32 rows, out.columns of them. Bits are those
  // of linear_quantized, act_mul and quantize.
  void (*linear_gated)(Activation activation, const PackedWeight& gate, const PackedWeight& up, const QuantizedRows& x,
                       int rows, int panel_begin, int panel_end, const QuantizedRows& out);
  void (*rms_norm)(const float* x, const float* weight, float* y, std::size_t groups, int width, float eps);
  void (*rope)(const float* x, float* y, int heads, int head_dim, const float* cos, const float* sin, int rotary_dim);
  void (*kv_write)(const KVLayer& cache, const float* k, const float* v, int slot);  // one row
  void (*act_mul)(Activation activation, const float* gate, const float* up, float* y, std::size_t n);
  void (*add)(const float* x, const float* y, float* out, std::size_t n);
  void (*scale)(const float* x, float factor, float* y, std::size_t n);
  void (*softcap)(const float* x, float cap, float* y, std::size_t n);
  void (*attention)(const AttentionArgs& args, const AttentionTile& tile, int kv_head, const SegmentRange& range,
                    float* scratch);
  void (*attention_join)(const AttentionArgs& args, const AttentionTile& tile, int kv_head, const SegmentRange& range);
  RowStats (*row_stats)(const float* logits, int n);
  float (*log_sum_exp)(const float* logits, int n, float max);
  // Lists ids from `from` on with logit * factor >= bar while there is room for 64 more; returns where to go on.
  int (*at_least)(const ScaledRow& row, int from, float bar, std::int32_t* ids, int room, int* found);
  void (*weights)(const ScaledRow& row, const std::int32_t* ids, int count, float* w);
  std::uint64_t (*mass_before)(const ScaledRow& row, const Place& end);
  // The winner among the tokens before `end` that weigh at least min_weight. `first_token`: a likely one.
  int (*race)(const ScaledRow& row, const Place& end, float min_weight, const Draw& draw, int first_token);
  int (*race_listed)(const std::int32_t* ids, const float* w, int n, const Draw& draw);
  std::uint32_t (*read_all)(const std::uint8_t* data, std::size_t bytes);  // csrc/roofline
  std::uint64_t (*dot_u8_chains)(int steps, std::int32_t* kept);           // return operations done
  std::uint64_t (*dot_u4_chains)(int steps, std::int32_t* kept);
  std::uint64_t (*fma_chains)(int steps, std::int32_t* kept);
};

}  // namespace forebay
