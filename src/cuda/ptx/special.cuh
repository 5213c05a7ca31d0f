// Special registers and parameters, read at the call: for kernels
// whose accumulators fill the registers, and before a first wait.
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

// The block's other two indices.
// PTX ISA: mov.u32 from %ctaid.y and %ctaid.z.
__device__ __forceinline__ int block_index_y() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(index));
  return index;
}
__device__ __forceinline__ int block_index_z() {
  int index;
  asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(index));
  return index;
}

// Reads a parameter here rather than at its first use: the constant cache is cold at launch.
// PTX ISA: mov.b32.
__device__ __forceinline__ int read_here(int parameter) {
  int value;
  asm volatile("mov.b32 %0, %1;" : "=r"(value) : "r"(parameter));
  return value;
}

}  // namespace flashcore::cuda::ptx
