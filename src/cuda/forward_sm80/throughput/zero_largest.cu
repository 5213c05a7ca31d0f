// Largest values before the blocks of a launch add theirs: 0, in the same stream.
#include <cstdint>

#include "cuda/forward_sm80/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) zero_kernel(const __grid_constant__ LargestValues v) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= v.batches * v.heads) return;
  const int64_t batch = i / v.heads;
  v.data[batch * v.batch + (i - batch * v.heads) * v.head] = 0;
}

}  // namespace

cudaError_t prepare_zero() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&zero_kernel));
}

cudaError_t zero_largest(const LargestValues& values, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned int>((values.batches * values.heads + kThreads - 1) / kThreads);
  if (blocks == 0) return cudaSuccess;
  return host::launch_kernel(&zero_kernel, {.grid = dim3(blocks), .threads = kThreads}, stream,
                             values);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
