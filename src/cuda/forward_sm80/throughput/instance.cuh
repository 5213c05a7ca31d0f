// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_sm80/throughput/kernel.cuh"
#include "cuda/forward_sm80/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

template <int kConfigIndex, class Element, Features kFeatures>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    const auto* const kernel =
        reinterpret_cast<const void*>(&forward_kernel<kConfigIndex, Element, kFeatures>);
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.smem_bytes());
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  }

  static cudaError_t launch(const LaunchParams& params, unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(
        &forward_kernel<kConfigIndex, Element, kFeatures>,
        {.grid = dim3(blocks), .threads = kConfig.threads(), .shared_bytes = kConfig.smem_bytes()},
        stream, params);
  }
};

}  // namespace flashcore::cuda::forward_sm80::throughput
