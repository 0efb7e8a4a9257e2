#include "linear/formats.h"

#include <cstring>
#include <stdexcept>

#include "linear/groups.h"

namespace forebay {

namespace {

const Format kFormats[] = {
    {"f32", Stored::f32, 1, 4, Storage::f32, 0, false},
    {"f16", Stored::f16, 1, 2, Storage::f16, 0, false},
    {"bf16", Stored::bf16, 1, 2, Storage::bf16, 0, false},
    {"q4_0", Stored::q4_0, 32, 18, Storage::u4, 8, false},
    {"q4_1", Stored::q4_1, 32, 20, Storage::u4_min, 0, true},
    {"q5_0", Stored::q5_0, 32, 22, Storage::u8, 16, false},
    {"q5_1", Stored::q5_1, 32, 24, Storage::u8_min, 0, true},
    {"q8_0", Stored::q8_0, 32, 34, Storage::u8, 128, false},
    {"q4_k", Stored::q4_k, 256, 144, Storage::u4_k, 0, true},
    {"q5_k", Stored::q5_k, 256, 176, Storage::u8_k, 0, true},
    {"q6_k", Stored::q6_k, 256, 210, Storage::u8_halves, 32, false},
};

std::uint16_t half_at(const std::uint8_t* p) {
  std::uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

float half(std::uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 0x3ff;
  std::uint32_t word = static_cast<std::uint32_t>(h & 0x8000) << 16;
  float out;
  if (exponent == 0) {
    out = static_cast<float>(fraction) * 0x1p-24f;
    return word ? -out : out;
  }
  word |= exponent == 31 ? 0x7f800000u : static_cast<std::uint32_t>(exponent + 112) << 23;
  word |= static_cast<std::uint32_t>(fraction) << 13;
  std::memcpy(&out, &word, 4);
  return out;
}

void nibbles(const std::uint8_t* low, std::uint8_t* code) {
  for (int i = 0; i < 16; ++i) {
    code[i] = low[i] & 15;
    code[16 + i] = low[i] >> 4;
  }
}

void five_bits(const std::uint8_t* high, const std::uint8_t* low, std::uint8_t* code) {
  nibbles(low, code);
  for (int i = 0; i < 32; ++i) code[i] |= static_cast<std::uint8_t>((high[i / 8] >> (i % 8) & 1) << 4);
}

// q4_k and q5_k keep eight 6-bit scales and minimums in 12 bytes (ggml-quants.c, get_scale_min_k4). Their minimum is
// subtracted.
void k_scale(const std::uint8_t* block, int index, Group& out) {
  const std::uint8_t* p = block + 4;
  out.factor[0] = out.factor[1] = index < 4 ? p[index] & 63 : (p[index + 4] & 15) | (p[index - 4] >> 6) << 4;
  out.min_factor = index < 4 ? p[index + 4] & 63 : p[index + 4] >> 4 | (p[index] >> 6) << 4;
  out.minimum ^= 0x8000;
}

void q5_k(const std::uint8_t* block, int index, Group& out) {
  k_scale(block, index, out);
  const std::uint8_t* low = block + 48 + index / 2 * 32;
  for (int i = 0; i < 32; ++i)
    out.code[i] = static_cast<std::uint8_t>((low[i] >> (index % 2 * 4) & 15) | (block[16 + i] >> index & 1) << 4);
}

void q6_k(const std::uint8_t* block, int index, Group& out) {
  const int half_block = index / 4, rest = index % 4;
  const std::uint8_t* low = block + half_block * 64 + rest % 2 * 32;
  const std::uint8_t* high = block + 128 + half_block * 32;
  for (int i = 0; i < 32; ++i)
    out.code[i] = static_cast<std::uint8_t>((low[i] >> (rest / 2 * 4) & 15) | (high[i] >> (rest * 2) & 3) << 4);
  out.scale = half_at(block + 208);
  for (int i = 0; i < 2; ++i) out.factor[i] = static_cast<std::int8_t>(block[192 + index * 2 + i]);
}

}  // namespace

const Format& find_format(const std::string& name) {
  for (const Format& format : kFormats)
    if (name == format.name) return format;
  throw std::invalid_argument("weight format '" + name + "' has no native kernel; use the reference backend");
}

void unpack_group(const Format& format, const std::uint8_t* row, int group, Group& out) {
  const int per_block = format.block_size / kQuantGroup;
  const std::uint8_t* b =
      row + static_cast<std::size_t>(group / per_block) * static_cast<std::size_t>(format.block_bytes);
  out.scale = half_at(b);
  out.minimum = format.has_min ? half_at(b + 2) : 0;
  out.factor[0] = out.factor[1] = out.min_factor = 1;
  switch (format.stored) {
    case Stored::q4_0:
      return nibbles(b + 2, out.code);
    case Stored::q4_1:
      return nibbles(b + 4, out.code);
    case Stored::q5_0:
      return five_bits(b + 2, b + 6, out.code);
    case Stored::q5_1:
      return five_bits(b + 4, b + 8, out.code);
    case Stored::q8_0:
      for (int i = 0; i < 32; ++i) out.code[i] = static_cast<std::uint8_t>(b[2 + i] + 128);
      return;
    case Stored::q4_k:
      k_scale(b, group % per_block, out);
      for (int i = 0; i < 32; ++i) out.code[i] = b[16 + group % per_block / 2 * 32 + i] >> (group % 2 * 4) & 15;
      return;
    case Stored::q5_k:
      return q5_k(b, group % per_block, out);
    case Stored::q6_k:
      return q6_k(b, group % per_block, out);
    case Stored::f32:
    case Stored::f16:
    case Stored::bf16:
      break;
  }
}

void dequantize_row(const Format& format, const std::uint8_t* row, int columns, float* out) {
  if (format.storage == Storage::f32) {
    std::memcpy(out, row, static_cast<std::size_t>(columns) * 4);
  } else if (format.storage == Storage::f16) {
    for (int i = 0; i < columns; ++i) out[i] = half(half_at(row + static_cast<std::size_t>(i) * 2));
  } else if (format.storage == Storage::bf16) {
    std::memset(out, 0, static_cast<std::size_t>(columns) * 4);
    for (int i = 0; i < columns; ++i)
      std::memcpy(reinterpret_cast<std::uint8_t*>(out + i) + 2, row + static_cast<std::size_t>(i) * 2, 2);
  } else {
    for (int first = 0; first < columns; first += kQuantGroup) {
      Group group;
      unpack_group(format, row, first / kQuantGroup, group);
      const float minimum = half(group.minimum) * static_cast<float>(group.min_factor);
      for (int i = 0; i < kQuantGroup; ++i) {
        const float scale = half(group.scale) * static_cast<float>(group.factor[i / 16]);
        const float scaled = scale * static_cast<float>(group.code[i] - format.zero);
        out[first + i] = format.has_min ? scaled + minimum : scaled;
      }
    }
  }
}

}  // namespace forebay
