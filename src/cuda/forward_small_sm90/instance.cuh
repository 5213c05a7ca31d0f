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
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kConfigs[kConfigIndex].ranks * grid.q_tiles, grid.heads, grid.batch);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kBytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelEx(&config, &forward_small_kernel<kConfigIndex, Element, kWhole>, params,
                              maps);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_small_sm90
