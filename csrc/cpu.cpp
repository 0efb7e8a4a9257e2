#include "cpu.h"

#include <stdexcept>

namespace forebay {

namespace generic {
const Kernels& kernels();
}
#ifdef FOREBAY_X86
namespace avx2 {
const Kernels& kernels();
}
namespace avx512_vnni {
const Kernels& kernels();
}
#endif

namespace {

// Worst to best.
std::vector<const Kernels*> supported() {
  std::vector<const Kernels*> found = {&generic::kernels()};
#ifdef FOREBAY_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    found.push_back(&avx2::kernels());
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
      found.push_back(&avx512_vnni::kernels());
  }
#endif
  return found;
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Kernels* kernels : supported()) names.emplace_back(kernels->isa);
  return names;
}

const Kernels& kernels_for(const std::string& isa) {
  std::string names;
  for (const Kernels* kernels : supported()) {
    if (isa == kernels->isa) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->isa);
  }
  throw std::invalid_argument("isa '" + isa + "' is not supported here; choose auto or one of: " + names);
}

}  // namespace forebay
