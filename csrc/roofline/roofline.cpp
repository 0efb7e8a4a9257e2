#include "roofline/roofline.h"

#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace forebay {

namespace {

constexpr int kSteps = 1 << 12;                            // of the arithmetic chains, and
constexpr std::size_t kReadAtOnce = std::size_t{1} << 21;  // bytes between two looks at the clock
constexpr std::size_t kBlock = 64;  // a share of the buffer is whole blocks, the rest goes to the last thread
constexpr std::size_t kMaxBytes = std::size_t{1} << 36;

}  // namespace

Roofline::Roofline(const Kernels& kernels, int threads) : kernels_(kernels), pool_(threads) {}

// All threads start together and each works until `seconds` are over by its own clock; the rates of all are added, so
// that a thread which had to wait for a processor shows, and one which was woken late does not.
std::vector<double> Roofline::rates(double seconds, int repeats, const Work& work) {
  if (!(seconds > 0.0 && seconds <= 60.0)) throw std::invalid_argument("seconds must be in (0, 60]");
  if (repeats < 1) throw std::invalid_argument("repeats must be at least 1, got " + std::to_string(repeats));
  std::vector<double> out, per_thread(static_cast<std::size_t>(pool_.size()));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    pool_.run([&](int thread) {
      double done = 0, took = 0;
      pool_.barrier();
      const auto began = std::chrono::steady_clock::now();
      while (took < seconds) {
        done += work(thread);
        took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      }
      per_thread[static_cast<std::size_t>(thread)] = done / took;
    });
    out.push_back(std::accumulate(per_thread.begin(), per_thread.end(), 0.0));
  }
  return out;
}

std::vector<double> Roofline::read(std::size_t bytes, double seconds, int repeats) {
  if (bytes < 1 || bytes > kMaxBytes) throw std::invalid_argument("bytes must be in [1, 2^36]");
  const int blocks = static_cast<int>(bytes / kBlock);
  const auto share = [&](int thread) {
    const Part part = part_of(blocks, thread, pool_.size());
    const bool last = thread + 1 == pool_.size();
    const std::size_t begin = static_cast<std::size_t>(part.begin) * kBlock;
    return std::pair{begin, last ? bytes : static_cast<std::size_t>(part.end) * kBlock};
  };
  if (buffer_.size() < bytes) {
    buffer_ = AlignedBuffer(bytes);
    pool_.run([&](int thread) {  // pages that nobody wrote to would all be one page of zeros
      const auto [begin, end] = share(thread);
      std::memset(buffer_.data() + begin, 0x5a, end - begin);
    });
  }
  return rates(seconds, repeats, [&](int thread) {
    const auto [begin, end] = share(thread);
    const std::size_t passes = kReadAtOnce / (end - begin + 1) + 1;
    for (std::size_t pass = 0; pass < passes; ++pass) {
      volatile std::uint32_t kept = kernels_.read_all(buffer_.data() + begin, end - begin);
      (void)kept;
    }
    return static_cast<double>(passes) * static_cast<double>(end - begin);
  });
}

std::vector<double> Roofline::peak(const std::string& kind, double seconds, int repeats) {
  const auto chains = kind == "dot_u8"    ? kernels_.dot_u8_chains
                      : kind == "dot_u4"  ? kernels_.dot_u4_chains
                      : kind == "fma_f32" ? kernels_.fma_chains
                                          : nullptr;
  if (!chains) throw std::invalid_argument("kind must be dot_u8, dot_u4 or fma_f32, got '" + kind + "'");
  return rates(seconds, repeats, [&](int) {
    std::int32_t result;
    const std::uint64_t operations = chains(kSteps, &result);
    volatile std::int32_t kept = result;
    (void)kept;
    return static_cast<double>(operations);
  });
}

}  // namespace forebay
