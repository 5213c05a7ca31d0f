// Copies of boxes of several panels of columns, which are
// contiguous in shared memory (sm_90). Otherwise like tma.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace flashcore::cuda::ptx {

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

}  // namespace flashcore::cuda::ptx
