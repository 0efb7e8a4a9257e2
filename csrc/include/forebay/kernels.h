// The table of kernels that every instruction set exports, and the plain structs that cross its border.
// Nothing here may have an inline function or template: these headers are compiled under different machine flags.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay {

constexpr int kLanes = 16;          // SIMD lanes of every instruction set; output rows per packed weight panel
constexpr int kQuantGroup = 32;     // activations are quantized per this many values along K
constexpr int kSegmentKeys = 64;    // attention softmax segments, anchored at position 0
constexpr int kAttentionTile = 16;  // most rows of one request that share a K/V conversion

enum class Storage { f32, f16, bf16, u4, u8, u8_half_groups };

// Panels of 16 output rows; columns run inside a panel. Float storages: [k][16] elements. Quantized storages: per group
// of 32 columns the codes interleaved as [k / 4][16 rows][4] bytes (u4: step s in the low, s + 4 in the high nibbles),
// then 16 f32 scales (u8_half_groups: 2 x 16, one per 16 columns), then 16 f32 minimums when `has_min`.
struct PackedWeight {
  Storage storage;
  int rows, columns;
  int zero;  // codes stand for (code - zero) * scale + min
  bool has_min;
  std::size_t panel_bytes;
  const std::uint8_t* data;
};

// Activations as int8: value ~ q * scale. q (rows, columns), scale (rows, columns / 32), sum of q (rows, columns / 16).
struct QuantizedRows {
  std::int8_t* q;
  float* scale;
  std::int32_t* sum;
  int columns;
};

enum class Activation { silu, gelu_tanh };

// One layer's attention. k, v: [num_blocks][block_size][kv_heads][head_dim], f16 or f32. q, out: (tokens, heads *
// head_dim).
struct AttentionArgs {
  const float* q;
  float* out;
  const void* k;
  const void* v;
  bool is_f16;
  int heads, kv_heads, head_dim, block_size;
  int window;  // a query at p sees keys in (p - window, p]; 0 = all up to p
  float scale;
};

// Rows [row_begin, row_end) of one request, at positions `position`, `position` + 1 ...
struct AttentionTile {
  int row_begin, row_end;
  int position;
  const std::int32_t* block_table;
};

struct RowStats {
  float max;
  int argmax;  // lowest id with the maximum
  bool has_nan;
};

// Key of the random draws of one row.
struct Draw {
  std::uint64_t seed;
  std::uint32_t output_position, child;
};

struct Kernels {
  const char* isa;
  void (*quantize)(const float* x, int row_begin, int row_end, const QuantizedRows& out);
  void (*linear_quantized)(const PackedWeight& w, const QuantizedRows& x, int rows, int panel_begin, int panel_end,
                           const float* bias, float* y);
  void (*linear_float)(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end,
                       const float* bias, float* y);
  void (*rms_norm)(const float* x, const float* weight, float* y, std::size_t groups, int width, float eps);
  void (*rope)(const float* x, float* y, int heads, int head_dim, const float* cos, const float* sin, int rotary_dim);
  void (*to_f16)(const float* x, std::uint16_t* y, int n);
  void (*act_mul)(Activation activation, const float* gate, const float* up, float* y, std::size_t n);
  void (*add)(const float* x, const float* y, float* out, std::size_t n);
  void (*scale)(const float* x, float factor, float* y, std::size_t n);
  void (*softcap)(const float* x, float cap, float* y, std::size_t n);
  void (*attention)(const AttentionArgs& args, const AttentionTile& tile, int kv_head, float* scratch);
  RowStats (*row_stats)(const float* logits, int n);
  float (*log_sum_exp)(const float* logits, int n, float max);
  void (*weights)(const float* logits, int n, float inverse_temperature, float max_scaled, float* w);
  std::uint64_t (*fixed_total)(const float* w, int n);  // sum of fixed_point(w[i])
  int (*next_at_least)(const float* x, int from, int n, float factor,
                       float bar);  // first i >= from: x[i] factor >= bar
  void (*race)(const float* w, int n, float min_weight, const Draw& draw, int* token);
  void (*race_listed)(const std::int32_t* ids, const float* w, int n, const Draw& draw, int* token);
  std::uint32_t (*read_all)(const std::uint8_t* data, std::size_t bytes);  // csrc/roofline
  std::uint64_t (*dot_u8_chains)(int steps, std::int32_t* kept);           // return operations done
  std::uint64_t (*dot_u4_chains)(int steps, std::int32_t* kept);
  std::uint64_t (*fma_chains)(int steps, std::int32_t* kept);
};

// Floats of scratch that `attention` needs.
std::size_t attention_scratch(int head_dim, int heads_per_kv_head);

}  // namespace forebay
