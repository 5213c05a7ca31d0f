// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/backward_sm90/wide/kernel.cuh"
#include "cuda/backward_sm90/wide/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::backward_sm90::wide {

template <class Element, bool kOptions>
struct CompiledInstance {
  static constexpr auto function() {
    if constexpr (kOptions) {
      return &wide_option_kernel<Element>;
    } else {
      return &wide_gradient_kernel<Element>;
    }
  }

  static cudaError_t prepare() {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(function()),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  }

  static cudaError_t launch(const Maps& maps, const OptionParams& p, cudaStream_t stream) {
    return host::launch_kernel(
        function(), {.grid = dim3(p.blocks()), .threads = kThreads, .shared_bytes = kSharedBytes},
        stream, maps, p);
  }
};

}  // namespace flashcore::cuda::backward_sm90::wide
