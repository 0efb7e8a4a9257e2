// What this machine can do at best, measured on the engine's own thread pool: the lines that kernels are set against.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "forebay/aligned_buffer.h"
#include "forebay/kernels.h"
#include "thread_pool.h"

namespace forebay {

class Roofline {
 public:
  Roofline(const Kernels& kernels, int threads);

  // Each entry is one timing of at least `seconds`, all threads together. Throws std::invalid_argument on a size or
  // repeat count below 1, or `seconds` that is not in (0, 60].
  std::vector<double> read(std::size_t bytes, double seconds, int repeats);        // bytes per second
  std::vector<double> peak(const std::string& kind, double seconds, int repeats);  // operations per second

 private:
  using Work = std::function<double(int thread)>;  // a little work, and how much it was
  std::vector<double> rates(double seconds, int repeats, const Work& work);

  const Kernels& kernels_;
  ThreadPool pool_;
  AlignedBuffer buffer_;
};

}  // namespace forebay
