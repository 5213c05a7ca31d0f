// Copies of tensor boxes with a policy for the L2 cache (sm_90).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashcore::cuda::ptx {

// tma_load_5d (tma.cuh) with a policy, as createpolicy makes it.
// PTX ISA: cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint, sm_90.
__device__ __forceinline__ void tma_load_5d_policy(uint32_t shared, const CUtensorMap* map,
                                                   uint32_t barrier, uint64_t policy, int c0,
                                                   int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4,%5,%6,%7,%8}], [%2], %3;" ::"r"(shared),
      "l"(map), "r"(barrier), "l"(policy), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

}  // namespace flashcore::cuda::ptx
