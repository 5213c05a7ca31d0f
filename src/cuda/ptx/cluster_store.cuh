// Stores to another block of the cluster besides those of cluster.cuh.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// As store_async (cluster.cuh), with 8 bytes.
// PTX ISA: st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32, sm_90.
__device__ __forceinline__ void store_async(uint32_t address, const uint32_t (&x)[2],
                                            uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 "
      "[%0], {%1,%2}, [%3];" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(barrier)
      : "memory");
}

// A store that goes here or to another block by a predicate: which of the two is not known when the
// values are made, and a branch would keep them apart. Writes 16 bytes: where `here`, to the own
// shared-memory address; otherwise as store_async (cluster.cuh) does.
// PTX ISA: st.shared.v4.b32, sm_70;
// st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32, sm_90.
__device__ __forceinline__ void store_here_or_async(bool here, uint32_t own, const uint32_t (&x)[4],
                                                    uint32_t there, uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %7, 0;\n"
      "@p st.shared.v4.b32 [%6], {%1,%2,%3,%4};\n"
      "@!p st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
      "[%0], {%1,%2,%3,%4}, [%5];\n"
      "}" ::"r"(there),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier), "r"(own),
      "r"(static_cast<uint32_t>(here))
      : "memory");
}

}  // namespace flashcore::cuda::ptx
