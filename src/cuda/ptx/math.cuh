// Packed conversions between fp32 and the 16-bit and 8-bit types. Includes the fast exponential.
#pragma once

#include <cstdint>

#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::ptx {

// {low, high} rounded to nearest even as two fp16 values, low in bits 0..15.
// PTX ISA: cvt.rn.f16x2.f32, sm_80.
__device__ __forceinline__ uint32_t pack_f16x2(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// {low, high} rounded to nearest even as two bf16 values, low in bits 0..15.
// PTX ISA: cvt.rn.bf16x2.f32, sm_80.
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Four floats rounded to nearest even as e4m3, x0 in bits
// 0..7. Saturates beyond +-448; NaN stays NaN (0x7f).
// PTX ISA: cvt.rn.satfinite.e4m3x2.f32, sm_89. Check kHasE4m3Products (mma.cuh) first.
__device__ __forceinline__ uint32_t pack_e4m3x4(float x0, float x1, float x2, float x3) {
#if __CUDA_ARCH__ >= 890
  uint32_t r;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(r)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return r;
#else
  static_cast<void>(x0), static_cast<void>(x1), static_cast<void>(x2), static_cast<void>(x3);
  __trap();
  return 0;
#endif
}

// Two e4m3 values (bits 0..7 and 8..15 of `pair`) as two fp16 values, exactly; NaN gives NaN.
// PTX ISA: cvt.rn.f16x2.e4m3x2, sm_89. Emulated below that: moving e4m3's exponent and
// fraction to fp16's bits gives value * 2^-8, also for subnormals; only NaN then becomes 480.
__device__ __forceinline__ uint32_t e4m3x2_to_f16x2(uint32_t pair) {
  uint32_t r;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(static_cast<uint16_t>(pair)));
#else
  const uint32_t bytes = (pair & 0xffu) | ((pair & 0xff00u) << 8);
  const uint32_t magnitude = (bytes & 0x007f007fu) << 7, sign = (bytes & 0x00800080u) << 8;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(magnitude | sign), "r"(0x5c005c00u));  // * 256
  constexpr uint32_t kNan = 0x3f80u;
  if ((magnitude & 0xffffu) == kNan) r |= 0x7fffu;
  if ((magnitude >> 16) == kNan) r |= 0x7fff0000u;
#endif
  return r;
}

// PTX ISA: cvt.f32.f16.
__device__ __forceinline__ float f16_to_float(uint16_t bits) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
}

// bf16 is the upper half of fp32.
__device__ __forceinline__ float bf16_to_float(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

}  // namespace flashcore::cuda::ptx
