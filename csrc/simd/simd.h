// Included by every kernel source: the vector vocabulary of the instruction set being compiled, then the math over it.
// FOREBAY_ISA (a namespace) and FOREBAY_SIMD_HEADER come from CMake, one pair per static library. Everything kernels
// use lives in forebay::FOREBAY_ISA; std:: templates are kept out, since the linker would merge their copies over
// libraries.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "forebay/kernels.h"

#include FOREBAY_SIMD_HEADER

#include "simd/math.h"

#define FOREBAY_INLINE inline __attribute__((always_inline))
#define FOREBAY_UNROLL _Pragma("GCC unroll 16")

namespace forebay::FOREBAY_ISA {

// Asks for the cache line at p, to the second level.
inline void prefetch(const std::uint8_t* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace forebay::FOREBAY_ISA
