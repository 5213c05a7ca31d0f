// Launching forward_fp8_sm90: the host's side, without CUDA headers' device code.
//
//   transpose_values   V^T into the workspace
//   an instance        attention; it starts while the values are still being transposed
//
//   compute_exactly    instead of both, of tensors that do not begin at multiples of 16 bytes
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// One row of the list of compiled kernels, kConfigs' order.
struct InstanceEntry {
  // Once a device, before the first launch: what to launch there.
  cudaError_t (*prepare)(cudaFunction_t& function);
  cudaError_t (*launch)(cudaFunction_t function, const Maps& maps, const Params& params,
                        unsigned int blocks, cudaStream_t stream);
};
const InstanceEntry& find_instance(int config);

// The same where the caller's V is stored transposed.
struct ColumnsEntry {
  InstanceEntry kernel;
  cudaError_t (*prepare_exactly)();
  cudaError_t (*compute_exactly)(const Params& params, cudaStream_t stream);
};
const ColumnsEntry& find_columns_instance(int config);

// Of the other two.
cudaError_t prepare_rows(int head_dim);
cudaError_t transpose_values(const Params& params, cudaStream_t stream);
cudaError_t compute_exactly(const Params& params, cudaStream_t stream);

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
