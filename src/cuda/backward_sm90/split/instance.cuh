// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/backward_sm90/split/kernel.cuh"
#include "cuda/backward_sm90/split/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::backward_sm90::split {

template <int kConfigIndex, class Element>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare(cudaFunction_t& function) {
    const auto kernel = &split_gradient_kernel<kConfigIndex, Element>;
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.shared_bytes());
    return error != cudaSuccess ? error : host::find_function(function, kernel);
  }

  static cudaError_t launch(cudaFunction_t function, int splits, const Maps& maps, const Params& p,
                            cudaStream_t stream) {
    const auto blocks = static_cast<unsigned int>(splits);
    return host::launch_kernel(function, &split_gradient_kernel<kConfigIndex, Element>,
                               {.grid = dim3(blocks * p.order.size()),
                                .threads = throughput::kThreads,
                                .shared_bytes = kConfig.shared_bytes(),
                                .cluster = blocks},
                               stream, maps, p, splits);
  }
};

}  // namespace flashcore::cuda::backward_sm90::split
