#include "forebay/kernels.h"

namespace forebay {

std::size_t attention_scratch(int head_dim, int heads_per_kv_head) {
  const std::size_t dims = static_cast<std::size_t>((head_dim + 15) / 16 * 16);
  const std::size_t rows = static_cast<std::size_t>(kAttentionTile) * static_cast<std::size_t>(heads_per_kv_head);
  return 2 * dims * kSegmentKeys + kSegmentKeys + rows * (dims + 16);
}

}  // namespace forebay
