// Signs of bytes, as masks of 16-bit halves.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Returns two halves, all ones or all zeros: the low one is the top bit of byte kByte of `low`, the
// high one is the top bit of the same byte of `high`.
// PTX ISA: prmt.b32, sm_20: a selector with its top bit set copies its byte's sign.
template <uint32_t kByte>
__device__ __forceinline__ uint32_t byte_signs(uint32_t low, uint32_t high) {
  static_assert(kByte < 4);
  constexpr uint32_t kSelector = (8 + kByte) * 0x0011U + (12 + kByte) * 0x1100U;
  uint32_t halves;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(halves) : "r"(low), "r"(high), "n"(kSelector));
  return halves;
}

}  // namespace flashcore::cuda::ptx
