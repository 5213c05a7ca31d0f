// What one translation unit of compiled kernels defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_sm80/latency/kernel.cuh"
#include "cuda/forward_sm80/latency/launch.hpp"
#include "cuda/host/driver_launch.hpp"

namespace flashcore::cuda::forward_sm80::latency {

template <int kConfigIndex, class Element, bool kWhole>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static const void* kernel() {
    return reinterpret_cast<const void*>(&forward_latency_kernel<kConfigIndex, Element, kWhole>);
  }

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.smem_bytes());
    return error != cudaSuccess ? error : host::find_function(function, kernel());
  }

  static cudaError_t launch(cudaFunction_t function, const Params& params, const Grid& grid,
                            cudaStream_t stream) {
    void* arguments[] = {const_cast<Params*>(&params)};
    return host::launch_function(function, kernel(),
                                 {.grid = dim3(grid.q_tiles, grid.heads, grid.batch),
                                  .threads = kConfig.threads(),
                                  .shared_bytes = kConfig.smem_bytes()},
                                 arguments, stream);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_sm80::latency
