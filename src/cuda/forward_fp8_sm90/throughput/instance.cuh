// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_fp8_sm90/throughput/kernel.cuh"
#include "cuda/forward_fp8_sm90/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

template <int kConfigIndex>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kSharedBytes = kConfig.shared_bytes();

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(&forward_kernel<kConfigIndex>),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    return error == cudaSuccess ? host::find_function(function, &forward_kernel<kConfigIndex>)
                                : error;
  }

  static cudaError_t launch(cudaFunction_t function, const Maps& maps, const Params& params,
                            unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(function, &forward_kernel<kConfigIndex>,
                               {.grid = dim3(blocks),
                                .threads = kConfig.threads(),
                                .shared_bytes = kSharedBytes,
                                // Of the transposition alone: that has waited for what came before.
                                .early = params.vt_keys > 0},
                               stream, maps, params);
  }
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
