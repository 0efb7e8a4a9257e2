// How the attention of a step is spread over threads: by (tile, kv head, segments), in shares of about equal cost.
#pragma once

#include <cstddef>
#include <vector>

#include "forebay/kernels.h"
#include "step.h"

namespace forebay {

// Floats of per-thread scratch that the attention kernel needs.
std::size_t attention_scratch(int head_dim, int heads_per_kv_head);
// Floats of the state of one row's query heads of one kv head.
std::size_t attention_state(int head_dim, int heads_per_kv_head);

// Bytes of one kv head in one block, and of a layer's whole cache (K and V).
std::size_t kv_head_bytes(KVFormat format, int head_dim, int block_size);
std::size_t kv_layer_bytes(const KVGroup& group, int block_size, int num_blocks);

// One step's shares for one KV group. A place is (item, segment): items are tile-major, kv heads within. A share may
// end inside an item only where the tile is a single row; such an item is cut: its first thread folds what it has,
// later ones leave each segment's state apart, and all is joined afterwards.
class AttentionShares {
 public:
  struct Place {
    int item, segment;  // segment counts from the tile's first
  };
  struct Cut {
    int item, first_end;  // segments [0, first_end) are folded by the first thread
  };

  void plan(const std::vector<Run>& tiles, int kv_heads, int heads_per_kv_head, int window, int threads);

  Place begin(int thread) const { return edges_[static_cast<std::size_t>(thread)]; }
  Place end(int thread) const { return edges_[static_cast<std::size_t>(thread) + 1]; }
  const std::vector<Cut>& cuts() const { return cuts_; }
  // The number of the item's cut, or -1.
  int cut_of(int item) const;

  static int first_segment(const Run& tile, int window);
  static int segments(const Run& tile, int window);

 private:
  std::vector<Place> edges_;
  std::vector<Cut> cuts_;
};

}  // namespace forebay
