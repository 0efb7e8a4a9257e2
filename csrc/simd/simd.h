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

#define FOREBAY_UNROLL _Pragma("GCC unroll 16")
