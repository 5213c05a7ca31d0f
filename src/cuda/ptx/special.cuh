// Where the compiler must not know better: it would keep in registers what is cheap to compute
// anew.
#pragma once

#include <cstdint>

namespace flashcore::cuda::ptx {

// blockIdx.x, which the compiler may not keep from an earlier read: what is computed from it is
// computed anew instead of occupying registers in between.
__device__ __forceinline__ uint32_t block_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// threadIdx.x, likewise.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

}  // namespace flashcore::cuda::ptx
