// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include <type_traits>

#include "cuda/forward_sm90/throughput/kernel.cuh"
#include "cuda/forward_sm90/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

template <int kConfigIndex, class Element, bool kFeatures, bool kPaged = false>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kSharedBytes = kConfig.tile_bytes() + kBarrierBytes;

  static auto kernel() {
    if constexpr (kPaged) {
      return &paged_kernel<kConfigIndex, Element, kFeatures>;
    } else {
      return &forward_kernel<kConfigIndex, Element, kFeatures>;
    }
  }

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel()),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  }

  static cudaError_t launch(const Maps& maps, const PagedParams& params, unsigned int blocks,
                            cudaStream_t stream) {
    using KernelParams = std::conditional_t<kPaged, PagedParams, Params>;
    return host::launch_kernel(kernel(),
                               {.grid = dim3(blocks),
                                .threads = kConfig.threads(),
                                .shared_bytes = kSharedBytes,
                                .blocks_an_sm = static_cast<unsigned int>(kConfig.blocks_an_sm)},
                               stream, maps, static_cast<const KernelParams&>(params));
  }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
