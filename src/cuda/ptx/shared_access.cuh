// Loads and stores of shared memory by address, in program order. Pairs
// lie at multiples of 8 bytes, groups of four at multiples of 16.
#pragma once

#include <cuda_runtime_api.h>

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

// PTX ISA: ld.shared.u32.
__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

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
