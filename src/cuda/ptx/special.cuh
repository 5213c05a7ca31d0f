// Special registers, read again at every call: for kernels whose accumulators fill the registers,
// which cannot keep an index from one end of the main loop to the other.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// The thread's index in a one-dimensional block.
// PTX ISA: mov.u32 from %tid.x.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// The block's index in a one-dimensional grid.
// PTX ISA: mov.u32 from %ctaid.x.
__device__ __forceinline__ uint32_t block_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

}  // namespace flashcore::cuda::ptx
