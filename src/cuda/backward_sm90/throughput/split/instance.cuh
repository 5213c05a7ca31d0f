// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/backward_sm90/throughput/split/kernel.cuh"
#include "cuda/backward_sm90/throughput/split/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::backward_sm90::split {

template <int kConfigIndex, class Element, int kSplits>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(
        reinterpret_cast<const void*>(&split_gradient_kernel<kConfigIndex, Element, kSplits>),
        cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.shared_bytes());
  }

  static cudaError_t launch(const Maps& maps, const Params& p, cudaStream_t stream) {
    return host::launch_kernel(&split_gradient_kernel<kConfigIndex, Element, kSplits>,
                               {.grid = dim3(kSplits * p.order.size()),
                                .threads = throughput::kThreads,
                                .shared_bytes = kConfig.shared_bytes(),
                                .cluster = kSplits},
                               stream, maps, p);
  }
};

}  // namespace flashcore::cuda::backward_sm90::split
