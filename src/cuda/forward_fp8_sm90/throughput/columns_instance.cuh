// What one translation unit for a V stored transposed defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_fp8_sm90/throughput/kernel.cuh"
#include "cuda/forward_fp8_sm90/throughput/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// 64 queries of one head, a warp for each 16: rows.cu has it of a V in rows.
template <int kConfigIndex>
__global__ void __launch_bounds__(kWarpgroupThreads)
    columns_exact_kernel(const __grid_constant__ Params p) {
  const Task task = find_tile(p, blockIdx.x, kWarpgroupRows);
  compute_rows_exactly<kConfigs[kConfigIndex].head_dim, true>(
      p, task, static_cast<int>(threadIdx.x) / 32 * kWarpRows, static_cast<int>(threadIdx.x) % 32);
}

template <int kConfigIndex>
struct CompiledColumns {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kSharedBytes = kConfig.shared_bytes();

  static cudaError_t prepare(cudaFunction_t& function) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(&columns_kernel<kConfigIndex>),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    return error == cudaSuccess ? host::find_function(function, &columns_kernel<kConfigIndex>)
                                : error;
  }

  static cudaError_t launch(cudaFunction_t function, const Maps& maps, const Params& params,
                            unsigned int blocks, cudaStream_t stream) {
    return host::launch_kernel(
        function, &columns_kernel<kConfigIndex>,
        {.grid = dim3(blocks), .threads = kConfig.threads(), .shared_bytes = kSharedBytes}, stream,
        maps, params);
  }

  static cudaError_t prepare_exactly() {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(
        &attributes, reinterpret_cast<const void*>(&columns_exact_kernel<kConfigIndex>));
  }

  static cudaError_t compute_exactly(const Params& params, cudaStream_t stream) {
    Params by_warpgroup = params;
    by_warpgroup.order.q_tiles =
        static_cast<uint32_t>((params.seqlen_q + kWarpgroupRows - 1) / kWarpgroupRows);
    by_warpgroup.order.longest_first = false;
    return host::launch_kernel(
        &columns_exact_kernel<kConfigIndex>,
        {.grid = dim3(by_warpgroup.order.size()), .threads = kWarpgroupThreads}, stream,
        by_warpgroup);
  }

  static ColumnsEntry entry() { return {{&prepare, &launch}, &prepare_exactly, &compute_exactly}; }
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
