#include <algorithm>
#include <cstring>

#include "linear/formats.h"
#include "linear/groups.h"
#include "thread_pool.h"

namespace forebay {

namespace {

std::size_t panel_bytes(const Format& format, int columns) {
  if (!format.quantized())
    return static_cast<std::size_t>(columns) * static_cast<std::size_t>(format.block_bytes * kPanelRows);
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(format.storage)];
  return static_cast<std::size_t>(columns / kQuantGroup / layout.groups) *
         static_cast<std::size_t>(layout.head_bytes + layout.groups * layout.group_bytes);
}

bool is_u4(const Format& format) {
  return format.storage == Storage::u4 || format.storage == Storage::u4_min || format.storage == Storage::u4_k;
}

void pack_codes(const Format& format, const Group& group, int lane, std::uint8_t* at) {
  const int offset = format.has_min || is_u4(format) ? 0 : 128 - format.zero;  // to the storage's zero point
  for (int k = 0; k < kQuantGroup; ++k) {
    const int step = k / 4, byte = lane % kLanes * 4 + k % 4;
    if (is_u4(format))
      at[lane / kLanes * 256 + step % 4 * 64 + byte] |=
          static_cast<std::uint8_t>(step < 4 ? group.code[k] : group.code[k] << 4);
    else
      at[lane / kLanes * 512 + step * 64 + byte] = static_cast<std::uint8_t>(group.code[k] + offset);
  }
}

void store_half(std::uint8_t* halves, int lane, std::uint16_t value) { std::memcpy(halves + 2 * lane, &value, 2); }

// Row `lane` of one group of a panel, and its part of the superblock's head; layout in kernels.h.
void pack_group(const Format& format, const Group& group, int lane, std::uint8_t* head, std::uint8_t* at) {
  pack_codes(format, group, lane, at);
  const bool has_head = format.block_size > kQuantGroup;
  std::uint8_t* scales = at + (is_u4(format) ? 512 : 1024);
  std::uint8_t* halves = has_head ? head : scales;
  store_half(halves, lane, group.scale);
  if (format.has_min) store_half(halves + 64, lane, group.minimum);
  if (!has_head) return;
  scales[lane] = static_cast<std::uint8_t>(group.factor[0]);
  scales[32 + lane] = static_cast<std::uint8_t>(format.has_min ? group.min_factor : group.factor[1]);
}

void pack_quantized(const Format& format, const std::uint8_t* row, int columns, int lane, std::uint8_t* panel) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(format.storage)];
  Group group;
  for (int first = 0; first < columns / kQuantGroup; first += layout.groups) {
    std::uint8_t* head = panel;
    panel += layout.head_bytes;
    for (int i = 0; i < layout.groups; ++i, panel += layout.group_bytes) {
      unpack_group(format, row, first + i, group);
      pack_group(format, group, lane, head, panel);
    }
  }
}

void pack_row(const Format& format, const std::uint8_t* row, int columns, int lane, std::uint8_t* panel) {
  if (format.quantized()) return pack_quantized(format, row, columns, lane, panel);
  const std::size_t size = static_cast<std::size_t>(format.block_bytes);
  for (std::size_t k = 0; k < static_cast<std::size_t>(columns); ++k)
    std::memcpy(panel + (k * kPanelRows + static_cast<std::size_t>(lane)) * size, row + k * size, size);
}

}  // namespace

PackedWeight pack(const Format& format, const std::uint8_t* data, int rows, int columns, ThreadPool& pool,
                  Arena& arena) {
  const int panels = (rows + kPanelRows - 1) / kPanelRows;
  const std::size_t stride = panel_bytes(format, columns);
  std::uint8_t* packed = arena.take(static_cast<std::size_t>(panels) * stride);
  pool.run([&](int thread) {
    const Part part = part_of(panels, thread, pool.size());
    for (int row = part.begin * kPanelRows; row < std::min(part.end * kPanelRows, rows); ++row)
      pack_row(format, data + static_cast<std::size_t>(row) * format.row_bytes(columns), columns, row % kPanelRows,
               packed + static_cast<std::size_t>(row / kPanelRows) * stride);
  });
  return {format.storage, rows, columns, stride, packed, nullptr};
}

}  // namespace forebay
