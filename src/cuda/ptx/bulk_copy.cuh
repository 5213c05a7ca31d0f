// Copies and sums of contiguous bytes between global and shared memory, without a tensor map (sm_90).
//
// One thread starts each of them. Addresses and sizes are multiples of 16 bytes.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Copies global -> shared memory; the bytes count towards `barrier`.
// PTX ISA: cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes, sm_90.
__device__ __forceinline__ void bulk_load(uint32_t shared, const void* global, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier)
      : "memory");
}

// Orders this thread's earlier ordinary accesses of global memory before its later copies.
// PTX ISA: fence.proxy.async.global, sm_90.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Copies shared -> global memory. Grouping and fences as for bulk_add_f32.
// PTX ISA: cp.async.bulk.global.shared::cta.bulk_group, sm_90.
__device__ __forceinline__ void bulk_store(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared), "r"(bytes)
               : "memory");
}

// global[i] += shared[i], each number separately like atomicAdd, in any order. Belongs to the
// thread's open group of stores (tma_store_commit). The writers of the shared memory each run
// fence_proxy_async and then meet at a barrier before the one thread that issues this.
// PTX ISA: cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32, sm_90.
__device__ __forceinline__ void bulk_add_f32(float* global, uint32_t shared, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
      "r"(shared), "r"(bytes)
      : "memory");
}

// Waits until at most kPending of this thread's groups of stores have not yet been written.
// PTX ISA: cp.async.bulk.wait_group, sm_90.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace flashcore::cuda::ptx
