// Waits on a transaction barrier with a loop that is opaque to the compiler.
//
// With a visible loop (mbarrier_wait), the compiler assumes that the lanes of a
// warp leave it one by one; then it keeps nothing after it in uniform registers.
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
