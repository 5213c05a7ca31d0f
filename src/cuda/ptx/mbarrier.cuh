// Transaction barriers in shared memory, on which threads wait for asynchronous copies.
//
// A barrier's phase completes when `count` arrivals have come and no announced byte is
// missing. A waiter names the parity of its phase: 0, 1, 0, ... from the first. Waiting on a
// fresh barrier for parity 1 succeeds at once, which is how a producer finds its ring empty.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Makes the 8 bytes at `barrier` a barrier of `count` arrivals per phase. Called by one thread.
// PTX ISA: mbarrier.init.shared::cta.b64, sm_80.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes barriers that this thread initialised visible to the asynchronous copy engine and to the
// cluster; a block barrier must follow before other threads use them.
// PTX ISA: fence.mbarrier_init.release.cluster, fence.proxy.async.shared::cta; sm_90.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives once; this thread's earlier reads and writes are ordered before the phase's completion.
// PTX ISA: mbarrier.arrive.shared::cta.b64, sm_80.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives once, and announces `bytes` that asynchronous copies will deliver in this phase.
// PTX ISA: mbarrier.arrive.expect_tx.shared::cta.b64, sm_90.
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Returns whether the phase of this parity has completed; may sleep for a bounded time before it returns false.
// PTX ISA: mbarrier.try_wait.parity.shared::cta.b64, sm_90;
// on older GPUs test_wait, which never sleeps, sm_80.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#else
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#endif
      "selp.b32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Waits until the phase of this parity has completed.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

// With a visible loop (mbarrier_wait), the compiler assumes that the lanes of a warp leave it one by
// one; then it keeps nothing after it in uniform registers. This loop is opaque to it.
//
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
