#include "attention/shares.h"

#include <algorithm>

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }
std::size_t padded(int n) { return size((n + 15) / 16 * 16); }

// About what a 64-key segment costs beside the arithmetic of its queries, in queries: it is fetched and widened.
constexpr long long kSegmentQueries = 4;

long long cost_of(const Run& tile, int heads, int window) {
  const long long queries = static_cast<long long>(tile.row_end - tile.row_begin) * heads;
  return AttentionShares::segments(tile, window) * (queries + kSegmentQueries);
}

}  // namespace

std::size_t attention_state(int head_dim, int heads_per_kv_head) {
  return 2 * padded(heads_per_kv_head) + size(heads_per_kv_head) * padded(head_dim);
}

std::size_t attention_scratch(int head_dim, int heads_per_kv_head) {
  const std::size_t rows = size(2 + kMostQueryTile) * size(kSegmentKeys);
  return 4 * padded(head_dim) * size(kSegmentKeys) + rows +
         attention_state(head_dim, kAttentionTile * heads_per_kv_head);
}

std::size_t kv_head_bytes(KVFormat format, int head_dim, int block_size) {
  const std::size_t item = format == KVFormat::f32 ? 4 : format == KVFormat::f16 ? 2 : 1;
  const std::size_t scale = format == KVFormat::i8 ? sizeof(float) : 0;
  return size(block_size) * (size(head_dim) * item + scale);
}

std::size_t kv_layer_bytes(const KVGroup& group, int block_size, int num_blocks) {
  return 2 * size(num_blocks) * size(group.kv_heads) * kv_head_bytes(group.format, group.head_dim, block_size);
}

int AttentionShares::first_segment(const Run& tile, int window) {
  return window ? std::max(0, tile.position - window + 1) / kSegmentKeys : 0;
}

int AttentionShares::segments(const Run& tile, int window) {
  const int last = tile.position + tile.row_end - tile.row_begin - 1;
  return last / kSegmentKeys + 1 - first_segment(tile, window);
}

void AttentionShares::plan(const std::vector<Run>& tiles, int kv_heads, int heads_per_kv_head, int window,
                           int threads) {
  long long total = 0;
  for (const Run& tile : tiles) total += kv_heads * cost_of(tile, heads_per_kv_head, window);
  edges_.assign(1, {0, 0});
  cuts_.clear();
  long long before = 0;
  int number = 0;
  for (const Run& tile : tiles) {
    const long long cost = cost_of(tile, heads_per_kv_head, window);
    const int count = segments(tile, window);
    for (int head = 0; head < kv_heads; ++head, ++number, before += cost) {
      while (static_cast<int>(edges_.size()) < threads) {
        const long long wanted = total * static_cast<long long>(edges_.size()) / threads - before;
        if (wanted > cost || (wanted == cost && cost > 0)) break;
        const bool may_cut = tile.row_end - tile.row_begin == 1;
        const int segment = may_cut ? static_cast<int>(wanted * count / std::max(cost, 1LL)) : 0;
        edges_.push_back(!may_cut && 2 * wanted > cost ? Place{number + 1, 0} : Place{number, segment});  // the nearer
        if (segment > 0 && (cuts_.empty() || cuts_.back().item != number)) cuts_.push_back({number, segment});
      }
    }
  }
  while (static_cast<int>(edges_.size()) <= threads) edges_.push_back({number, 0});
}

int AttentionShares::cut_of(int item) const {
  for (std::size_t i = 0; i < cuts_.size(); ++i)
    if (cuts_[i].item == item) return static_cast<int>(i);
  return -1;
}

}  // namespace forebay
