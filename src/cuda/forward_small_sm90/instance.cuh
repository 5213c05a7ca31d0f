// What one translation unit of compiled kernels defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_small_sm90/kernel.cuh"
#include "cuda/forward_small_sm90/launch.hpp"
#include "cuda/tile/driver_launch.hpp"

namespace flashcore::cuda::forward_small_sm90 {

template <int kConfigIndex, class Element, Cover kCover>
struct CompiledInstance {
  static constexpr int kBytes =
      static_cast<int>(sizeof(typename Shape<kConfigIndex, Element, kCover>::Shared));

  static const void* kernel() {
    return reinterpret_cast<const void*>(&forward_small_kernel<kConfigIndex, Element, kCover>);
  }

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    return error != cudaSuccess ? error : tile::find_function(function, kernel());
  }

  static cudaError_t launch(cudaFunction_t function, const Maps& maps, const Params& params,
                            const Grid& grid, bool early, cudaStream_t stream) {
    void* arguments[] = {const_cast<Params*>(&params), const_cast<Maps*>(&maps)};
    return tile::launch_function(
        function, kernel(),
        {.grid = dim3(kConfigs[kConfigIndex].ranks * grid.q_tiles, grid.heads, grid.batch),
         .threads = kThreads,
         .shared_bytes = kBytes,
         .early = early},
        arguments, stream);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_small_sm90
