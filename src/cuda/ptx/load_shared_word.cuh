// A load of one word of shared memory by address.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// PTX ISA: ld.shared.u32.
__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

}  // namespace flashcore::cuda::ptx
