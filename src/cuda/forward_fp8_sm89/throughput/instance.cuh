// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_fp8_sm89/throughput/kernel.cuh"
#include "cuda/forward_fp8_sm89/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

template <int kConfigIndex>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    const auto* const kernel = reinterpret_cast<const void*>(&forward_kernel<kConfigIndex>);
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.shared_bytes());
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  }

  static cudaError_t launch(const Params& params, unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(
        &forward_kernel<kConfigIndex>,
        {.grid = dim3(blocks), .threads = kThreads, .shared_bytes = kConfig.shared_bytes()}, stream,
        params);
  }
};

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
