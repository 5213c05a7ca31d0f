// Waiting on a transaction barrier by a loop that the compiler does not see into.
//
// A loop of its own (mbarrier_wait) makes the compiler assume that the lanes of a warp leave it one
// by one; then it keeps nothing after it in uniform registers.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Waits until the phase of this parity has completed. All lanes of the warp call it.
// PTX ISA: mbarrier.try_wait.parity.shared::cta.b64, sm_90.
__device__ __forceinline__ void mbarrier_wait_together(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace flashcore::cuda::ptx
