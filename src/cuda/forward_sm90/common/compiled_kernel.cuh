// The host's side of one compiled kernel of forward_sm90_latency or forward_sm90_latency_wide.
#pragma once

#include "cuda/forward_sm90/common/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_sm90 {

// Kernel: kernel(), its host function; kClusterBlocks a tile of queries, kBlockThreads and
// kSharedBytes of each block.
template <class Kernel>
struct CompiledKernel {
  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(Kernel::kernel()),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
    return error != cudaSuccess ? error : host::find_function(function, Kernel::kernel());
  }

  static cudaError_t launch(cudaFunction_t function, const Maps& maps, const Params& params,
                            const Grid& grid, bool early, cudaStream_t stream) {
    return host::launch_kernel(
        function, Kernel::kernel(),
        {.grid = dim3(Kernel::kClusterBlocks * grid.q_tiles, grid.heads, grid.batch),
         .threads = Kernel::kBlockThreads,
         .shared_bytes = Kernel::kSharedBytes,
         .cluster = Kernel::kClusterBlocks,
         .early = early},
        stream, params, maps);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

}  // namespace flashcore::cuda::forward_sm90
