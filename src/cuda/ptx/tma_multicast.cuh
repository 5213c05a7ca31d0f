// Copies by the tensor memory accelerator to several blocks of a cluster at once
// (sm_90), and the arrival by which a block signals to another that a slot is free.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashcore::cuda::ptx {

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
