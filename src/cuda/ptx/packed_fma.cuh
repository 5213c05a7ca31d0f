// Two 16-bit floating-point numbers at once.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// a * b + c in each half, rounded once.
// PTX ISA: fma.rn.f16x2, sm_53.
__device__ __forceinline__ uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// PTX ISA: fma.rn.bf16x2, sm_80.
__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

}  // namespace flashcore::cuda::ptx
