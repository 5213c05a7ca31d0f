// Loads and stores of shared memory by address, in program order. Pairs
// lie at multiples of 8 bytes, groups of four at multiples of 16.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// PTX ISA: ld.shared.v2.f32.
__device__ __forceinline__ float2 load_shared_x2(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

// PTX ISA: ld.shared.v4.f32.
__device__ __forceinline__ float4 load_shared_f32x4(uint32_t address) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

// PTX ISA: st.shared.v2.f32.
__device__ __forceinline__ void store_shared_x2(uint32_t address, float low, float high) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(low), "f"(high) : "memory");
}

// PTX ISA: st.shared.v2.b32.
__device__ __forceinline__ void store_shared_x2(uint32_t address, const uint32_t (&x)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x[0]), "r"(x[1]) : "memory");
}

}  // namespace flashcore::cuda::ptx
