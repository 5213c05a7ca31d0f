// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/backward_sm90/throughput/kernel.cuh"
#include "cuda/backward_sm90/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

template <int kConfigIndex, class Element, bool kInTurn>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(
        reinterpret_cast<const void*>(&gradient_kernel<kConfigIndex, Element, kInTurn>),
        cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.shared_bytes());
  }

  static cudaError_t launch(const Maps& maps, const OptionParams& p, cudaStream_t stream) {
    return host::launch_kernel(
        &gradient_kernel<kConfigIndex, Element, kInTurn>,
        {.grid = dim3(p.order.size()), .threads = kThreads, .shared_bytes = kConfig.shared_bytes()},
        stream, maps, p);
  }
};

// With options.
template <int kConfigIndex, class Element>
struct CompiledOptions {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(
        reinterpret_cast<const void*>(&option_gradient_kernel<kConfigIndex, Element>),
        cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.shared_bytes());
  }

  static cudaError_t launch(const Maps& maps, const OptionParams& p, cudaStream_t stream) {
    return host::launch_kernel(
        &option_gradient_kernel<kConfigIndex, Element>,
        {.grid = dim3(p.order.size()), .threads = kThreads, .shared_bytes = kConfig.shared_bytes()},
        stream, maps, p);
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput
