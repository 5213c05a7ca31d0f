// ex2.approx: two to the power x, on the special function unit.
#pragma once

namespace flashcore::cuda::ptx {

// 2^x to about 2 ulp; denormal results become 0; 2^-inf = 0; NaN stays NaN.
// PTX ISA: ex2.approx.ftz.f32.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

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
