// Transposes an 8x8 matrix of 16-bit elements in the registers of one warp.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Lane l's register holds elements 2*(l%4) and +1 of row l/4, before and after.
// PTX ISA: movmatrix.sync.aligned.m8n8.trans.b16, sm_75.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

}  // namespace flashcore::cuda::ptx
