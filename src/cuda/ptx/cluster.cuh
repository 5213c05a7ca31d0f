// Pairs of blocks that run together (thread block clusters, sm_90): their barrier, and writes into
// each other's shared memory.
//
// A shared-memory address names the block's own memory. The same variable in another block of the
// cluster has another address, which cluster_address gives; only the instructions here take it. A
// block must not leave while another may still write to it.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Makes barriers that this thread initialised visible to the cluster and to the copy engine, once a
// barrier of threads has passed. (mbarrier_init_fence orders other shared memory as well.)
// PTX ISA: fence.mbarrier_init.release.cluster, sm_90.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Counts this warp as arrived at the barrier of all threads of the cluster, and orders nothing. It
// returns at once: between arrival and wait there is time for other work.
// PTX ISA: barrier.cluster.arrive.relaxed.aligned, sm_90.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Waits until all threads of the cluster have arrived. What another thread published before its
// arrival (publish_barriers) is then visible.
// PTX ISA: barrier.cluster.wait.acquire.aligned, sm_90.
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where block `rank` of the cluster has what this block has at shared-memory address `address`.
// PTX ISA: mapa.shared::cluster.u32, sm_90.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Writes 16 bytes to another block's shared memory, and counts them at a barrier of that block: a
// thread there that has waited for the barrier reads what was written. Both are cluster addresses.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, const uint32_t (&x)[4],
                                            uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
      "[%0], {%1,%2,%3,%4}, [%5];" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
      : "memory");
}

// The same with 4 bytes.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, uint32_t x, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          address),
      "r"(x), "r"(barrier)
      : "memory");
}

// Waits until the phase of this parity of an own barrier has completed, and sees what other blocks
// of the cluster wrote for it.
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

}  // namespace flashcore::cuda::ptx
