// Tensor Core products of fp32 operands truncated to tf32: the exponents of fp32, 10 bits of fraction.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// x rounded to the nearest tf32, ties away from zero; the 13 bits below are 0. NaN stays NaN.
// PTX ISA: cvt.rna.tf32.f32, sm_80.
__device__ __forceinline__ float round_to_tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return __uint_as_float(r);
}

// D(16x8, f32) += A(16x8, tf32, row-major) * B(8x8, tf32, column-major), by one warp.
// With g = lane / 4 and t = lane % 4, each 32-bit register holding one element, bits below tf32
// ignored:
//   a[0] = A[g][t], a[1] = A[g+8][t], a[2] = A[g][t+4], a[3] = A[g+8][t+4]
//   b0 = B[t][g], b1 = B[t+4][g]
//   d[0..1] = D[g][2t..], d[2..3] = D[g+8][2t..]
// The hardware truncates, and does not round, excess bits when it adds.
// PTX ISA: mma.sync.aligned.m16n8k8 with tf32, sm_80.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const float (&a)[4], float b0,
                                                 float b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// Loads the 32-bit word at a shared address.
// PTX ISA: ld.shared.f32.
__device__ __forceinline__ float load_shared_f32(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

}  // namespace flashcore::cuda::ptx
