// Transposed stores of 8x8 matrices (ptx/ldmatrix.cuh).
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// The inverse of ldmatrix_x4_trans.
// PTX ISA: stmatrix.sync.aligned.m8n8.x4.trans.shared.b16, sm_90.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row_address, uint32_t r0, uint32_t r1,
                                                  uint32_t r2, uint32_t r3) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
      : "memory");
#else
  static_cast<void>(row_address);
  static_cast<void>(r0), static_cast<void>(r1), static_cast<void>(r2), static_cast<void>(r3);
  __trap();
#endif
}

}  // namespace flashcore::cuda::ptx
