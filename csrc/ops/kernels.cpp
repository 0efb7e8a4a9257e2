// The table of this instruction set. cpu.cpp picks one of these at run time.
#include "simd/declare.h"

namespace forebay::FOREBAY_ISA {

#define FOREBAY_STRING_OF(name) #name
#define FOREBAY_STRING(name) FOREBAY_STRING_OF(name)

const Kernels& kernels() {
  static const Kernels table = {
      FOREBAY_STRING(FOREBAY_ISA),
      quantize,
      linear_quantized,
      linear_float,
      linear_gated,
      rms_norm,
      rope,
      kv_write,
      act_mul,
      add,
      scale,
      softcap,
      attention,
      attention_join,
      row_stats,
      log_sum_exp,
      at_least,
      weights,
      mass_before,
      race,
      race_listed,
      read_all,
      dot_u8_chains,
      dot_u4_chains,
      fma_chains,
  };
  return table;
}

}  // namespace forebay::FOREBAY_ISA
