// What one translation unit of compiled kernels defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_small_sm80/kernel.cuh"
#include "cuda/forward_small_sm80/launch.hpp"

namespace flashcore::cuda::forward_small_sm80 {

template <int kConfigIndex, class Element, bool kWhole>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    const auto* const kernel =
        reinterpret_cast<const void*>(&forward_small_sm80_kernel<kConfigIndex, Element, kWhole>);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kConfig.smem_bytes());
  }

  static cudaError_t launch(const Params& params, const Grid& grid, cudaStream_t stream) {
    forward_small_sm80_kernel<kConfigIndex, Element, kWhole>
        <<<dim3(grid.q_tiles, grid.heads, grid.batch), kConfig.threads(), kConfig.smem_bytes(),
           stream>>>(params);
    return cudaGetLastError();
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_small_sm80
