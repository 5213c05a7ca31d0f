// Another store to a block of the cluster, in addition to the ones in cluster.cuh.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

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
