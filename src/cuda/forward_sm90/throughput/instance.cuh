// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_sm90/throughput/kernel.cuh"
#include "cuda/forward_sm90/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

template <int kConfigIndex, class Element, bool kFeatures>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kSharedBytes = kConfig.tile_bytes() + kBarrierBytes;

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(
        reinterpret_cast<const void*>(&forward_kernel<kConfigIndex, Element, kFeatures>),
        cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  }

  static cudaError_t launch(const Maps& maps, const Params& params, unsigned int blocks,
                            cudaStream_t stream) {
    return host::launch_kernel(&forward_kernel<kConfigIndex, Element, kFeatures>,
                               {.grid = dim3(blocks),
                                .threads = kConfig.threads(),
                                .shared_bytes = kSharedBytes,
                                .blocks_an_sm = static_cast<unsigned int>(kConfig.blocks_an_sm)},
                               stream, maps, params);
  }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
