// What one translation unit of a compiled kernel defines; instances.cpp lists them.
#pragma once

#include "cuda/decode_sm90/stream_kv/kernel.cuh"
#include "cuda/decode_sm90/stream_kv/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::decode::Bf16, attention::decode::Fp16;

template <int kConfigIndex, class Element>
struct CompiledInstance {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error = cudaFuncSetAttribute(
        reinterpret_cast<const void*>(&decode_stream_kernel<kConfigIndex, Element>),
        cudaFuncAttributeMaxDynamicSharedMemorySize, kConfig.smem_bytes());
    if (error != cudaSuccess) return error;
    return host::find_function(function, &decode_stream_kernel<kConfigIndex, Element>);
  }

  static cudaError_t launch(cudaFunction_t function, const Params& params, const Maps& maps,
                            const Grid& grid, bool early, cudaStream_t stream) {
    return host::launch_kernel(function, &decode_stream_kernel<kConfigIndex, Element>,
                               {.grid = dim3(grid.tiles, grid.shares),
                                .threads = kThreads,
                                .shared_bytes = kConfig.smem_bytes(),
                                .early = early},
                               stream, params, maps);
  }
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv
