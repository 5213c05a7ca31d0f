#include "bench/time/probe_kernels.hpp"

namespace flashcore::bench {
namespace {

__global__ void empty_kernel() {}

__global__ void copy_kernel(uint4* to, const uint4* from, size_t count) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

}  // namespace

cudaError_t launch_empty_kernel(cudaStream_t stream) {
  empty_kernel<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_copy_kernel(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  constexpr unsigned kThreads = 512;
  const size_t count = bytes / sizeof(uint4);
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  copy_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<uint4*>(to),
                                               static_cast<const uint4*>(from), count);
  return cudaGetLastError();
}

}  // namespace flashcore::bench
