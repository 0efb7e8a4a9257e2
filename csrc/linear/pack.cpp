#include <algorithm>
#include <cstring>

#include "linear/formats.h"
#include "linear/groups.h"
#include "thread_pool.h"

namespace forebay {

namespace {

std::size_t group_bytes(const Format& format) {
  const std::size_t codes = format.storage == Storage::u4 ? 256 : 512;
  const std::size_t scales = format.storage == Storage::u8_half_groups ? 128 : 64;
  return codes + scales + (format.has_min ? 64 : 0);
}

std::size_t panel_bytes(const Format& format, int columns) {
  if (!format.quantized())
    return static_cast<std::size_t>(columns) * static_cast<std::size_t>(format.block_bytes * kLanes);
  return static_cast<std::size_t>(columns / kQuantGroup) * group_bytes(format);
}

// Lane `lane` of one packed group; layout in kernels.h.
void pack_group(const Format& format, const Group& group, int lane, std::uint8_t* at) {
  const bool is_u4 = format.storage == Storage::u4;
  for (int k = 0; k < kQuantGroup; ++k) {
    const int step = k / 4, byte = lane * 4 + k % 4;
    if (!is_u4)
      at[step * 64 + byte] = group.code[k];
    else
      at[step % 4 * 64 + byte] |= static_cast<std::uint8_t>(step < 4 ? group.code[k] : group.code[k] << 4);
  }
  float* scales = reinterpret_cast<float*>(at + (is_u4 ? 256 : 512));
  scales[lane] = group.scale[0];
  if (format.storage == Storage::u8_half_groups) scales[16 + lane] = group.scale[1];
  if (format.has_min) scales[16 + lane] = group.min;
}

void pack_row(const Format& format, const std::uint8_t* row, int columns, int lane, std::uint8_t* panel) {
  if (format.quantized()) {
    Group group;
    const std::size_t stride = group_bytes(format);
    for (int g = 0; g < columns / kQuantGroup; ++g) {
      unpack_group(format, row, g, group);
      pack_group(format, group, lane, panel + static_cast<std::size_t>(g) * stride);
    }
    return;
  }
  const std::size_t size = static_cast<std::size_t>(format.block_bytes);
  for (std::size_t k = 0; k < static_cast<std::size_t>(columns); ++k)
    std::memcpy(panel + (k * kLanes + static_cast<std::size_t>(lane)) * size, row + k * size, size);
}

}  // namespace

PackedMatrix pack(const Format& format, const std::uint8_t* data, int rows, int columns, ThreadPool& pool) {
  const int panels = (rows + kLanes - 1) / kLanes;
  const std::size_t stride = panel_bytes(format, columns);
  PackedMatrix out{AlignedBuffer(static_cast<std::size_t>(panels) * stride),
                   {format.storage, rows, columns, format.zero, format.has_min, stride, nullptr}};
  out.view.data = out.memory.data();
  pool.run([&](int thread) {
    const Part part = part_of(panels, thread, pool.size());
    for (int row = part.begin * kLanes; row < std::min(part.end * kLanes, rows); ++row)
      pack_row(format, data + static_cast<std::size_t>(row) * format.row_bytes(columns), columns, row % kLanes,
               out.memory.data() + static_cast<std::size_t>(row / kLanes) * stride);
  });
  return out;
}

}  // namespace forebay
