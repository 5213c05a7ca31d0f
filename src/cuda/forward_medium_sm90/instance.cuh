// What one translation unit of compiled kernels defines; instances.cpp chooses among them.
#pragma once

#include "cuda/forward_medium_sm90/kernel.cuh"
#include "cuda/forward_medium_sm90/launch.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

template <class Element, bool kWhole>
struct CompiledInstance {
  static cudaError_t prepare() {
    const auto* const kernel =
        reinterpret_cast<const void*>(&forward_medium_kernel<Element, kWhole>);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  }

  static cudaError_t launch(const Maps& maps, const Params& params, const Grid& grid, bool early,
                            cudaStream_t stream) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kRanks * grid.q_tiles, grid.heads, grid.batch);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = kSmemBytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelEx(&config, &forward_medium_kernel<Element, kWhole>, params, maps);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

template <class Element>
InstanceEntry compiled(bool whole) {
  return whole ? CompiledInstance<Element, true>::entry()
               : CompiledInstance<Element, false>::entry();
}

}  // namespace flashcore::cuda::forward_medium_sm90
