// What one translation unit of a compiled kernel with options defines; option_instances.cpp lists them.
#pragma once

#include "cuda/forward_fp8_sm90/throughput/kernel.cuh"
#include "cuda/forward_fp8_sm90/throughput/option_launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

template <int kConfigIndex, bool kE5M2>
struct CompiledOptions {
  static constexpr Config kConfig = kOptionConfigs[kConfigIndex];
  static constexpr int kSharedBytes = kConfig.shared_bytes();
  static constexpr auto kKernel = &option_kernel<kConfigIndex, kE5M2>;

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kKernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    return error == cudaSuccess ? host::find_function(function, kKernel) : error;
  }

  static cudaError_t launch(cudaFunction_t function, const Maps& maps, const OptionParams& params,
                            unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(function, kKernel,
                               {.grid = dim3(blocks),
                                .threads = kConfig.threads(),
                                .shared_bytes = kSharedBytes,
                                // Of the transposition alone: that has waited for what came before.
                                .early = params.vt_keys > 0},
                               stream, maps, params);
  }

  static OptionEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
