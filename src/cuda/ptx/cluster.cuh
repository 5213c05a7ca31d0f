// Blocks that run together (thread block clusters, sm_90):
// their barrier, and writes to each other's shared memory.
//
// A shared-memory address names the block's own memory. The same variable in another
// block of the cluster has another address, returned by cluster_address; only the
// instructions here accept it. A block must not exit while another may still write to it.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Makes barriers that this thread initialised visible to the cluster and to the copy engine,
// after a following barrier of threads. (mbarrier_init_fence orders other shared memory as well.)
// PTX ISA: fence.mbarrier_init.release.cluster, sm_90.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Counts this warp as arrived at the barrier of all threads of the cluster, without
// ordering memory. It returns at once: other work can be done between arrival and wait.
// PTX ISA: barrier.cluster.arrive.relaxed.aligned, sm_90.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Waits until all threads of the cluster have arrived. Barriers that another
// thread published before its arrival (publish_barriers) are then visible.
// PTX ISA: barrier.cluster.wait.acquire.aligned, sm_90.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Returns block `rank`'s address of the memory that has shared-memory address `address` in this block.
// PTX ISA: mapa.shared::cluster.u32, sm_90.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Writes 16 bytes to another block's shared memory, and counts them at a barrier of that block:
// a thread there that has waited for the barrier can read them. Both are cluster addresses.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, const uint32_t (&x)[4],
                                            uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
      "[%0], {%1,%2,%3,%4}, [%5];" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
      : "memory");
}

// Writes 4 bytes.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, uint32_t x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          address),
      "r"(x), "r"(barrier)
      : "memory");
}

// Waits until the phase of this parity of an own barrier has completed,
// and acquires the writes of other blocks of the cluster in that phase.
// PTX ISA: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64, sm_90.
__device__ __forceinline__ void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

// Like store_async (cluster.cuh), with 8 bytes.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, const uint32_t (&x)[2],
                                            uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 "
      "[%0], {%1,%2}, [%3];" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(barrier)
      : "memory");
}

}  // namespace flashcore::cuda::ptx
