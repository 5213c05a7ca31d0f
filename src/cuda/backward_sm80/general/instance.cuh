// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/backward_sm80/general/bias_gradient.cuh"
#include "cuda/backward_sm80/general/joint.cuh"
#include "cuda/backward_sm80/general/kernel.cuh"
#include "cuda/backward_sm80/general/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::backward_sm80::general {

template <int kConfigIndex, class Element, Output kOutput, Features kFeatures>
struct CompiledInstance {
  static constexpr auto kConfig = [] {
    if constexpr (kOutput == Output::joint) {
      return joint_config_of(kConfigIndex, kFeatures);
    } else {
      return config_of(kConfigIndex, kFeatures);
    }
  }();

  static constexpr auto kernel() {
    if constexpr (kOutput == Output::d_bias) {
      return &bias_gradient_kernel<kConfigIndex, Element>;
    } else if constexpr (kOutput == Output::joint) {
      return &joint_kernel<kConfigIndex, Element, kFeatures>;
    } else {
      return &gradient_kernel<kConfigIndex, Element, kOutput, kFeatures>;
    }
  }

  static cudaError_t prepare() {
    const auto* const function = reinterpret_cast<const void*>(kernel());
    const cudaError_t error = cudaFuncSetAttribute(
        function, cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.smem_bytes());
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  }

  static cudaError_t launch(const Params& params, unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(
        kernel(),
        {.grid = dim3(blocks), .threads = kConfig.threads(), .shared_bytes = kConfig.smem_bytes()},
        stream, params);
  }
};

}  // namespace flashcore::cuda::backward_sm80::general
