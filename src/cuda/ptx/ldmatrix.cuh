// 8x8 matrices of 16-bit elements between shared memory and the registers of one warp.
//
// A matrix consists of eight rows of 16 bytes, each anywhere in shared memory at a
// 16-byte boundary: lane i provides the address of row i % 8 of matrix i / 8. Rows on
// eight different 16-byte bank groups (address / 16 modulo 8) are read without conflict.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Returns the address that shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// r[m] of lane l = elements 2*(l%4) and +1 of row l/4 of matrix m: the layout of an A register, and
// of a B register when the rows are B's columns.
// PTX ISA: ldmatrix.sync.aligned.m8n8.x4.shared.b16, sm_75.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}

// r[m] of lane l = element l/4 of rows 2*(l%4) and +1 of matrix m: the layout of a B register when
// the rows are B's rows.
// PTX ISA: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16, sm_75.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row_address)
               : "memory");
}

// The inverse of ldmatrix_x4.
// PTX ISA: stmatrix.sync.aligned.m8n8.x4.shared.b16, sm_90.
__device__ __forceinline__ void stmatrix_x4(uint32_t row_address, uint32_t r0, uint32_t r1,
                                            uint32_t r2, uint32_t r3) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
#else
  static_cast<void>(row_address);
  static_cast<void>(r0), static_cast<void>(r1), static_cast<void>(r2), static_cast<void>(r3);
  __trap();
#endif
}

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
