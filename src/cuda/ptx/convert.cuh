// Converts single 16-bit values, given as bits, to fp32.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

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
