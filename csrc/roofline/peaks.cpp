#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

namespace {

std::uint64_t word_at(const std::uint8_t* data) {
  std::uint64_t word;
  std::memcpy(&word, data, 8);
  return word;
}

// N dot products that do not wait for each other: block n / kRows of codes with activations n % kRows. Members,
// not an array: GCC keeps an array of them in memory.
template <class Dot, int N>
struct Chains : Chains<Dot, N - 1> {
  Dot dot;
  void step(const U8x64* blocks, const std::int8_t* a) {
    Chains<Dot, N - 1>::step(blocks, a);
    dot.step(blocks[(N - 1) / Dot::kRows], a + (N - 1) % Dot::kRows * 4);
  }
  I32x16 all() const { return xor_i(Chains<Dot, N - 1>::all(), dot.finish(set1_i(0))); }
};
template <class Dot>
struct Chains<Dot, 0> {
  void step(const U8x64*, const std::int8_t*) {}
  I32x16 all() const { return set1_i(0); }
};

// The sums may wrap; the widening that real kernels do once per group is left out: this is what the dot instructions
// alone can do.
template <class Dot>
std::uint64_t dot_chains(int steps, std::int32_t* kept) {
  constexpr int kChains = kTileVectors * Dot::kRows;
  std::uint8_t codes[64];
  std::int8_t activations[Dot::kRows * 4];
  std::memset(codes, 1, sizeof codes);
  std::memset(activations, 1, sizeof activations);
  const std::int8_t* a = activations;
  __asm__ volatile("" : "+r"(a));  // nobody knows that these are ones
  U8x64 blocks[kTileVectors];
  for (int i = 0; i < kTileVectors; ++i) blocks[i] = load_u8(codes);
  Chains<Dot, kChains> chains;
  for (int step = 0; step < steps; ++step) {
    FOREBAY_UNROLL
    for (int i = 0; i < kTileVectors; ++i)
      make_opaque(blocks[i]);  // else the products, always the same, leave the loop
    chains.step(blocks, a);
  }
  *kept = reduce_max_i(chains.all());
  return std::uint64_t{128} * kChains * static_cast<std::uint64_t>(steps);
}

}  // namespace

// The exclusive or of the 32-bit words of `data` (the last one filled up with zeros): every byte is read once, in four
// streams. Plain C++ that every compiler turns into the widest loads of the instruction set.
std::uint32_t read_all(const std::uint8_t* data, std::size_t bytes) {
  const std::size_t words = bytes / 32;  // of 8 bytes, in each stream
  const std::uint8_t *a = data, *b = a + 8 * words, *c = b + 8 * words, *d = c + 8 * words;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < words; ++i)
    all ^= word_at(a + 8 * i) ^ word_at(b + 8 * i) ^ word_at(c + 8 * i) ^ word_at(d + 8 * i);
  for (std::size_t at = 32 * words; at < bytes; at += 8) {
    std::uint64_t rest = 0;
    std::memcpy(&rest, data + at, bytes - at < 8 ? bytes - at : 8);
    all ^= rest;
  }
  return static_cast<std::uint32_t>(all ^ (all >> 32));
}

std::uint64_t dot_u8_chains(int steps, std::int32_t* kept) { return dot_chains<DotU8>(steps, kept); }
std::uint64_t dot_u4_chains(int steps, std::int32_t* kept) { return dot_chains<DotU4>(steps, kept); }

std::uint64_t fma_chains(int steps, std::int32_t* kept) {
  F32x16 chain[kFmaChains];
  for (int i = 0; i < kFmaChains; ++i) chain[i] = zero();
  const F32x16 half = set1(0.5f), one = set1(1.0f);
  for (int step = 0; step < steps; ++step) {
    FOREBAY_UNROLL
    for (int i = 0; i < kFmaChains; ++i) chain[i] = fma(chain[i], half, one);
  }
  I32x16 all = set1_i(0);
  FOREBAY_UNROLL
  for (int i = 0; i < kFmaChains; ++i) all = xor_i(all, bits(chain[i]));
  *kept = reduce_max_i(all);
  return std::uint64_t{32} * kFmaChains * static_cast<std::uint64_t>(steps);
}

}  // namespace forebay::FOREBAY_ISA
