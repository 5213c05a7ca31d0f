// Vector stores to shared memory by address.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Stores 16 bytes at a multiple of 16.
// PTX ISA: st.shared.v4.f32.
__device__ __forceinline__ void store_shared_x4(uint32_t address, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

// PTX ISA: st.shared.v4.b32.
__device__ __forceinline__ void store_shared_x4(uint32_t address, const uint32_t (&x)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]),
               "r"(x[2]), "r"(x[3])
               : "memory");
}

}  // namespace flashcore::cuda::ptx
