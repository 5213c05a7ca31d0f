// Vector loads from shared memory by address.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashcore::cuda::ptx {

// Loads 16 bytes at a multiple of 16.
// PTX ISA: ld.shared.v4.u32.
__device__ __forceinline__ uint4 load_shared_x4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

}  // namespace flashcore::cuda::ptx
