// The special function unit's logarithm and reciprocal,
// without the steps that denormal arguments need.
#pragma once

namespace flashcore::cuda::ptx {

// log2(x), with absolute error about 1e-7 near 1; -inf for 0 (and denormals).
// PTX ISA: lg2.approx.ftz.f32.
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x to about 1 ulp; inf for 0 (and denormals).
// PTX ISA: rcp.approx.ftz.f32.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace flashcore::cuda::ptx
