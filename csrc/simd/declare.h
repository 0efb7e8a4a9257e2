// The kernels of one instruction set; each is defined in the source file of its name.
#pragma once

#include "simd/simd.h"

namespace forebay::FOREBAY_ISA {

void quantize(const float* x, int row_begin, int row_end, const QuantizedRows& out);
void linear_quantized(const PackedWeight& w, const QuantizedRows& x, int rows, int panel_begin, int panel_end,
                      const float* residual, float* y);
void linear_float(const PackedWeight& w, const float* x, int rows, int panel_begin, int panel_end,
                  const float* residual, float* y);
void linear_gated(Activation activation, const PackedWeight& gate, const PackedWeight& up, const QuantizedRows& x,
                  int rows, int panel_begin, int panel_end, const QuantizedRows& out);
void rms_norm(const float* x, const float* weight, float* y, std::size_t groups, int width, float eps);
void rope(const float* x, float* y, int heads, int head_dim, const float* cos, const float* sin, int rotary_dim);
void kv_write(const KVLayer& cache, const float* k, const float* v, int slot);
void act_mul(Activation activation, const float* gate, const float* up, float* y, std::size_t n);
void add(const float* x, const float* y, float* out, std::size_t n);
void scale(const float* x, float factor, float* y, std::size_t n);
void softcap(const float* x, float cap, float* y, std::size_t n);
void attention(const AttentionArgs& args, const AttentionTile& tile, int kv_head, const SegmentRange& range,
               float* scratch);
void attention_join(const AttentionArgs& args, const AttentionTile& tile, int kv_head, const SegmentRange& range);
RowStats row_stats(const float* logits, int n);
float log_sum_exp(const float* logits, int n, float max);
int at_least(const ScaledRow& row, int from, float bar, std::int32_t* ids, int room, int* found);
void weights(const ScaledRow& row, const std::int32_t* ids, int count, float* w);
std::uint64_t mass_before(const ScaledRow& row, const Place& end);
int race(const ScaledRow& row, const Place& end, float min_weight, const Draw& draw, int first_token);
int race_listed(const std::int32_t* ids, const float* w, int n, const Draw& draw);
std::uint32_t read_all(const std::uint8_t* data, std::size_t bytes);
std::uint64_t dot_u8_chains(int steps, std::int32_t* kept);
std::uint64_t dot_u4_chains(int steps, std::int32_t* kept);
std::uint64_t fma_chains(int steps, std::int32_t* kept);

}  // namespace forebay::FOREBAY_ISA
