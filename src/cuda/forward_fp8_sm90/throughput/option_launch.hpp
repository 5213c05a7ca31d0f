// Launching the instances with options.
//
//   transpose_values   V^T into the workspace, and 0 into amax_o and amax_s, where they are wanted
//   an instance        attention; it starts while the values are still being transposed
//
//   clear_largest      those alone, where V^T is not made
//   compute_exactly    instead of the others, of tensors that do not begin at multiples of 16 bytes
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_fp8_sm90/throughput/option_params.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// Of one row of kOptionConfigs and one type of Q, K and V.
struct OptionEntry {
  // Once a device, before the first launch: what to launch there.
  cudaError_t (*prepare)(cudaFunction_t& function);
  cudaError_t (*launch)(cudaFunction_t function, const Maps& maps, const OptionParams& params,
                        unsigned int blocks, cudaStream_t stream);
};
const OptionEntry& find_option_instance(int config, bool e5m2);

// Of the others.
cudaError_t prepare_option_rows();
cudaError_t clear_largest(const OptionParams& params, cudaStream_t stream);
cudaError_t transpose_option_values(const OptionParams& params, cudaStream_t stream);
cudaError_t compute_options_exactly(const OptionParams& params, bool e5m2, cudaStream_t stream);

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
