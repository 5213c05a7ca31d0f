// What one translation unit of compiled kernels defines; instances.cpp chooses among them.
#pragma once

#include "cuda/forward_medium_sm90/kernel.cuh"
#include "cuda/forward_medium_sm90/launch.hpp"
#include "cuda/tile/driver_launch.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

template <class Element, bool kWhole>
struct CompiledInstance {
  static const void* kernel() {
    return reinterpret_cast<const void*>(&forward_medium_kernel<Element, kWhole>);
  }

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    return error != cudaSuccess ? error : tile::find_function(function, kernel());
  }

  static cudaError_t launch(cudaFunction_t function, const Maps& maps, const Params& params,
                            const Grid& grid, bool early, cudaStream_t stream) {
    void* arguments[] = {const_cast<Params*>(&params), const_cast<Maps*>(&maps)};
    return tile::launch_function(function, kernel(),
                                 {.grid = dim3(kRanks * grid.q_tiles, grid.heads, grid.batch),
                                  .threads = kThreads,
                                  .shared_bytes = kSmemBytes,
                                  .early = early},
                                 arguments, stream);
  }

  static InstanceEntry entry() { return {&prepare, &launch}; }
};

template <class Element>
InstanceEntry compiled(bool whole) {
  return whole ? CompiledInstance<Element, true>::entry()
               : CompiledInstance<Element, false>::entry();
}

}  // namespace flashcore::cuda::forward_medium_sm90
