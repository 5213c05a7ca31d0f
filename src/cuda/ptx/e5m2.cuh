// e5m2 numbers: conversion, and products of one warp. Check kHasE4m3Products (mma.cuh) first.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Rounds two floats to nearest even as e5m2, x0 in bits 0..7. Saturates beyond +-57344; NaN stays NaN.
// PTX ISA: cvt.rn.satfinite.e5m2x2.f32, sm_89.
__device__ __forceinline__ uint32_t pack_e5m2x2(float x0, float x1) {
#if __CUDA_ARCH__ >= 890
  uint16_t r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(r) : "f"(x0), "f"(x1));
  return r;
#else
  static_cast<void>(x0), static_cast<void>(x1);
  __trap();
  return 0;
#endif
}

// D(16x8, f32) += A(16x32, e5m2, row-major) * B(32x8, e5m2,
// column-major), by one warp, with the layouts of mma_m16n8k32_e4m3.
// PTX ISA: mma.sync.aligned.m16n8k32 with e5m2, sm_89.
__device__ __forceinline__ void mma_m16n8k32_e5m2(float (&d)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  static_cast<void>(d), static_cast<void>(a), static_cast<void>(b0), static_cast<void>(b1);
  __trap();
#endif
}

}  // namespace flashcore::cuda::ptx
