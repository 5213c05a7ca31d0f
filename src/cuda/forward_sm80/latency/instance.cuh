// What one translation unit of compiled kernels defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_sm80/latency/kernel.cuh"
#include "cuda/forward_sm80/latency/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_sm80::latency {

template <int kConfigIndex, class Element, bool kWhole>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static auto kernel() { return &forward_latency_kernel<kConfigIndex, Element, kWhole>; }

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel()),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.smem_bytes());
    return error != cudaSuccess ? error : host::find_function(function, kernel());
  }

  static cudaError_t launch(cudaFunction_t function, const Params& params, const Grid& grid,
                            cudaStream_t stream) {
    return host::launch_kernel(function, kernel(),
                               {.grid = dim3(grid.q_tiles, grid.heads, grid.batch),
                                .threads = kConfig.threads(),
                                .shared_bytes = kConfig.smem_bytes()},
                               stream, params);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_sm80::latency
