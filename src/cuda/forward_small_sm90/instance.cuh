// What one translation unit of compiled kernels defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_small_sm90/kernel.cuh"
#include "cuda/forward_small_sm90/launch.hpp"

namespace flashcore::cuda::forward_small_sm90 {

template <int kConfigIndex, class Element, bool kWhole>
struct CompiledInstance {
  static constexpr int kBytes =
      static_cast<int>(sizeof(typename Shape<kConfigIndex, Element, kWhole>::Shared));

  static cudaError_t prepare() {
    const auto* const kernel =
        reinterpret_cast<const void*>(&forward_small_kernel<kConfigIndex, Element, kWhole>);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  }

  static cudaError_t launch(const Maps& maps, const Params& params, const Grid& grid, bool early,
                            cudaStream_t stream) {
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {kRanks, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kRanks * grid.q_tiles, grid.heads, grid.batch);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kBytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = early ? 2 : 1;
    return cudaLaunchKernelEx(&config, &forward_small_kernel<kConfigIndex, Element, kWhole>, params,
                              maps);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_small_sm90
