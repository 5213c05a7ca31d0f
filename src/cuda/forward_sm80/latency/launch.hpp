// Launching forward_sm80_latency: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_sm80/latency/params.hpp"

namespace flashcore::cuda::forward_sm80::latency {

enum class InputType { f16, bf16 };

// Which compiled kernel: kConfigs[config], its type, and whether all tiles are whole.
struct Instance {
  InputType type;
  int config;
  bool whole;

  bool operator==(const Instance&) const = default;
};

// Blocks: query tiles, heads, batch entries.
struct Grid {
  unsigned int q_tiles, heads, batch;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  // Once a device, before the first launch.
  cudaError_t (*prepare)(cudaFunction_t& function);
  cudaError_t (*launch)(cudaFunction_t function, const Params& params, const Grid& grid,
                        cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

}  // namespace flashcore::cuda::forward_sm80::latency
