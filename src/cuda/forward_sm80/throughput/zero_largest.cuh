// Sets largest values to 0, in the same stream, before the blocks of a launch add theirs.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/params.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

__global__ void __launch_bounds__(kZeroThreads)
    zero_kernel(const __grid_constant__ LargestValues v) {
  const int64_t i = int64_t{blockIdx.x} * kZeroThreads + threadIdx.x;
  if (i >= v.batches * v.heads) return;
  const int64_t batch = i / v.heads;
  v.data[batch * v.batch + (i - batch * v.heads) * v.head] = 0;
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm80::throughput
