// Launching forward_fp8_sm89: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// One row of the list of compiled kernels, kConfigs' order.
struct InstanceEntry {
  // Once a device, before the first launch.
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const Params& params, unsigned int blocks, cudaStream_t stream);
};
const InstanceEntry& find_instance(int config);

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
