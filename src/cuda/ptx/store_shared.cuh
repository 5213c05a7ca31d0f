// Vector stores to shared memory by address.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// 16 bytes at a multiple of 16.
// PTX ISA: st.shared.v4.f32.
__device__ __forceinline__ void store_shared_x4(uint32_t address, const float (&x)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]),
               "f"(x[2]), "f"(x[3])
               : "memory");
}

}  // namespace flashcore::cuda::ptx
