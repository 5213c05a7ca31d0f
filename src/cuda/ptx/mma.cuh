// Tensor Core products of one warp with operands in registers (mma.sync).
//
// The elements of each lane are also defined, and tested, in tile/fragment.hpp.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// True if the compilation target has e4m3 products; true in host code.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
inline constexpr bool kHasE4m3Products = true;
#else
inline constexpr bool kHasE4m3Products = false;
#endif

// D(16x8, f32) += A(16x16, f16, row-major) * B(16x8, f16, column-major), by one warp.
// With g = lane / 4 and t = lane % 4, each 32-bit register holding two neighbours along K:
//   a[0] = A[g][2t..], a[1] = A[g+8][2t..], a[2] = A[g][2t+8..], a[3] = A[g+8][2t+8..]
//   b[0] = B[2t..][g], b[1] = B[2t+8..][g]
//   d[0..1] = D[g][2t..], d[2..3] = D[g+8][2t..]
// PTX ISA: mma.sync.aligned.m16n8k16, sm_80.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The product of bf16 operands, in the layouts of the fp16 one.
// PTX ISA: mma.sync.aligned.m16n8k16, sm_80.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// D(16x8, f32) += A(16x32, e4m3, row-major) * B(32x8, e4m3, column-major), by one warp.
// Each 32-bit register holds four neighbours along K:
//   a[0] = A[g][4t..], a[1] = A[g+8][4t..], a[2] = A[g][4t+16..], a[3] = A[g+8][4t+16..]
//   b[0] = B[4t..][g], b[1] = B[4t+16..][g]
//   d as above.
// The hardware keeps fewer fraction bits than fp32 between the partial products of one sum.
// PTX ISA: mma.sync.aligned.m16n8k32 with e4m3, sm_89. Check kHasE4m3Products first.
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  static_cast<void>(d), static_cast<void>(a), static_cast<void>(b0), static_cast<void>(b1);
  __trap();
#endif
}

// Lane l's register holds elements 2*(l%4) and +1 of row l/4, before and after.
// PTX ISA: movmatrix.sync.aligned.m8n8.trans.b16, sm_75.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// On sm_90 the compiler unpacks both operands to halves and multiplies twice, which takes registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
inline constexpr bool kMultipliesE4m3 = false;
#else
inline constexpr bool kMultipliesE4m3 = true;
#endif

}  // namespace flashcore::cuda::ptx
