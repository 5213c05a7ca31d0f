// Sets largest values to the least there are, in the same stream, before the blocks of a launch add theirs.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/params.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

__device__ __forceinline__ void fill(const LargestValues& v, float least) {
  const int64_t i = int64_t{blockIdx.x} * kFillThreads + threadIdx.x;
  if (i >= v.batches * v.heads) return;
  const int64_t batch = i / v.heads;
  v.data[batch * v.batch + (i - batch * v.heads) * v.head] = least;
}

__global__ void __launch_bounds__(kFillThreads)
    zero_kernel(const __grid_constant__ LargestValues v) {
  fill(v, 0);
}
__global__ void __launch_bounds__(kFillThreads)
    lowest_kernel(const __grid_constant__ LargestValues v) {
  fill(v, -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm80::throughput
