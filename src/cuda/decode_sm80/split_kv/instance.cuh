// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/decode_sm80/split_kv/kernel.cuh"
#include "cuda/decode_sm80/split_kv/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::decode::Bf16, attention::decode::Fp16;

template <int kConfigIndex, class Element>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare() {
    const auto* const kernel = reinterpret_cast<const void*>(&decode_kernel<kConfigIndex, Element>);
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.smem_bytes());
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  }

  static cudaError_t launch(const PairParams& params, unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(
        &decode_kernel<kConfigIndex, Element>,
        {.grid = dim3(blocks), .threads = kConfig.threads(), .shared_bytes = kConfig.smem_bytes()},
        stream, static_cast<const ParamsOf<kConfig>&>(params));
  }
};

}  // namespace flashcore::cuda::decode_sm80::split_kv
