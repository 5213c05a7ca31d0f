// The sum of a number of each thread of a block, always in the same order.
#pragma once

#include <cuda_runtime.h>

namespace flashcore::cuda::attention {

// For all threads; `parts` is in shared memory, and must not be written before all of them have returned.
template <int kThreads>
__device__ __forceinline__ double block_sum(double (&parts)[kThreads], double own) {
  parts[threadIdx.x] = own;
  __syncthreads();
  for (unsigned int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  return parts[0];
}

}  // namespace flashcore::cuda::attention
