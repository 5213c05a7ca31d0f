// Stores of 8 bytes to shared memory, of this block and of another of the cluster.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// 8 bytes at a multiple of 8.
// PTX ISA: st.shared.v2.b32.
__device__ __forceinline__ void store_shared_x2(uint32_t address, const uint32_t (&x)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x[0]), "r"(x[1]) : "memory");
}

__device__ __forceinline__ float2 load_shared_x2(uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

// PTX ISA: ld.shared.b32, ld.shared.u16.
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ uint32_t load_shared_u16(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

// As store_async (cluster.cuh) of 16 bytes.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, const uint32_t (&x)[2],
                                            uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1,%2}, [%3];" ::"r"(
          address),
      "r"(x[0]), "r"(x[1]), "r"(barrier)
      : "memory");
}

}  // namespace flashcore::cuda::ptx
