// Barriers among part of a block, fences between memory proxies, and the register split of a block.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// Synchronises `threads` threads (a multiple of 32, whole warps)
// at named barrier `id`, 1..15; __syncthreads uses barrier 0.
// PTX ISA: barrier.cta.sync.aligned.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Counts this warp as arrived at named barrier `id` without waiting.
// PTX ISA: barrier.cta.arrive.aligned.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Synchronises `threads` threads at named barrier `id`; returns true to all if `condition` held for any.
// PTX ISA: barrier.cta.red.or.pred.aligned.
__device__ __forceinline__ bool named_barrier_or(int id, int threads, bool condition) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred in, out;\n"
      "setp.ne.u32 in, %3, 0;\n"
      "barrier.cta.red.or.pred.aligned out, %1, %2, in;\n"
      "selp.b32 %0, 1, 0, out;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<uint32_t>(condition))
      : "memory");
  return any != 0;
}

// Orders this thread's ordinary shared-memory accesses before later ones by
// TMA or wgmma. A barrier must follow before another thread starts these.
// PTX ISA: fence.proxy.async.shared::cta, sm_90.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Releases registers above kRegisters per thread, or acquires up to kRegisters from those that others
// released; every warp of the warpgroup runs it. kRegisters is a multiple of 8 in 24..256, and the sum
// over the block may not exceed the launch's allocation: floor(65536 / threads / 8) * 8 per thread.
// PTX ISA: setmaxnreg.{dec,inc}.sync.aligned.u32, sm_90a. ptxas ignores it (C7507, C7508) without
// __launch_bounds__, so builds treat those notes as errors.
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void acquire_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace flashcore::cuda::ptx
