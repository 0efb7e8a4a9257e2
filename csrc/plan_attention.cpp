// The two halves of attention in a step: every thread's share, then what was cut between threads.
#include <algorithm>

#include "plan.h"

namespace forebay {

namespace {

std::size_t size(int n) { return static_cast<std::size_t>(n); }

AttentionTile tile_of(const Run& run, const Step::Table& table) {
  return {run.row_begin, run.row_end, run.position, table.data + size(run.request) * size(table.columns)};
}

}  // namespace

float* Plan::states_of_cut(int cut) {
  const std::size_t segments = size((limits_.max_model_len - 1) / kSegmentKeys + 1);
  return reinterpret_cast<float*>(cut_states_.data()) + size(cut) * segments * state_floats_;
}

void Plan::attend(const AttentionArgs& args, const LayerCache& cache, const Step& step, int thread) {
  const AttentionShares& shares = shares_[cache.number];
  const AttentionShares::Place begin = shares.begin(thread), end = shares.end(thread);
  const int kv_heads = args.cache.kv_heads;
  const int last = end.segment ? end.item : end.item - 1;
  const auto next_of = [&](int item) {
    const Run& run = tiles_[size(item / kv_heads)];
    return SegmentRange::Next{tile_of(run, step.tables[cache.number]), item % kv_heads,
                              AttentionShares::first_segment(run, args.window)};
  };
  for (int item = begin.item; item <= last; ++item) {
    const SegmentRange::Next own = next_of(item), then = next_of(std::min(item + 1, last));
    const int from = item == begin.item ? begin.segment : 0, first = own.segment;
    const int to =
        item == end.item ? end.segment : AttentionShares::segments(tiles_[size(item / kv_heads)], args.window);
    const int cut = shares.cut_of(item);
    const SegmentRange range{first,         first + from,
                             first + to,    cut < 0 ? nullptr : states_of_cut(cut),
                             state_floats_, item < last ? &then : nullptr};
    kernels_.attention(args, own.tile, own.kv_head, range, scratch(thread));
  }
}

// Of this thread's rows, so that what follows by rows needs no wait.
void Plan::join_cuts(const AttentionArgs& args, const LayerCache& cache, const Step& step, Part rows) {
  const std::vector<AttentionShares::Cut>& cuts = shares_[cache.number].cuts();
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const Run& run = tiles_[size(cuts[i].item / args.cache.kv_heads)];
    if (run.row_begin < rows.begin || run.row_begin >= rows.end) continue;
    const int first = AttentionShares::first_segment(run, args.window);
    const SegmentRange range{first,
                             first + cuts[i].first_end,
                             first + AttentionShares::segments(run, args.window),
                             states_of_cut(static_cast<int>(i)),
                             state_floats_,
                             nullptr};
    kernels_.attention_join(args, tile_of(run, step.tables[cache.number]), cuts[i].item % args.cache.kv_heads, range);
  }
}

}  // namespace forebay
