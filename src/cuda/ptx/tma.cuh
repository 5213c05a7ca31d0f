// Copies of tensor boxes between global and shared memory by the tensor memory accelerator (sm_90).
//
// One thread issues a copy; the map (tile/tensor_map.hpp) holds shape, strides, box and swizzle.
// Elements of a box that lie outside the tensor are read as zero, still counted as bytes, and never
// written. Shared-memory addresses are multiples of 128 bytes (1024 with the 128-byte swizzle).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashcore::cuda::ptx {

// Starts fetching the map itself; otherwise its first use waits for it.
// PTX ISA: prefetch.tensormap, sm_90.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies the box at element coordinates (c0 innermost) -> shared memory; its bytes count towards `barrier`.
// PTX ISA: cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes, sm_90.
__device__ __forceinline__ void tma_load_4d(uint32_t shared, const CUtensorMap* map,
                                            uint32_t barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// Copies shared memory -> box at element coordinates. The writers of the shared memory each
// run fence_proxy_async and then meet at a barrier before the one thread that issues this.
// PTX ISA: cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group, sm_90.
__device__ __forceinline__ void tma_store_4d(const CUtensorMap* map, uint32_t shared, int c0,
                                             int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(
          map),
      "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// Closes the group of stores that this thread has issued.
// PTX ISA: cp.async.bulk.commit_group, sm_90.
__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups have not yet read their shared memory.
// PTX ISA: cp.async.bulk.wait_group.read, sm_90.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Copies the box at element coordinates (c0 innermost) -> shared memory; its bytes count towards `barrier`.
// PTX ISA: cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes, sm_90.
__device__ __forceinline__ void tma_load_5d(uint32_t shared, const CUtensorMap* map,
                                            uint32_t barrier, int c0, int c1, int c2, int c3,
                                            int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3,%4,%5,%6,%7}], [%2];" ::"r"(shared),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Like tma_load_4d (tma.cuh), but to the same address in every block of the cluster whose bit
// is set in `blocks`: the bytes count towards each block's own barrier at the same address.
// PTX ISA: cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
// .multicast::cluster, sm_90.
__device__ __forceinline__ void tma_load_4d_multicast(uint32_t shared, const CUtensorMap* map,
                                                      uint32_t barrier, uint16_t blocks, int c0,
                                                      int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4,%5,%6,%7}], [%2], %3;" ::"r"(shared),
      "l"(map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// Arrives once at a barrier of a block of the cluster (a cluster address):
// this thread's earlier reads are ordered before the phase's completion.
// PTX ISA: mbarrier.arrive.shared::cluster.b64, sm_90.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace flashcore::cuda::ptx
