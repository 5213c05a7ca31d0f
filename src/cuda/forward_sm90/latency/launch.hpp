// Launching forward_sm90_latency: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_sm90/latency/params.hpp"

namespace flashcore::cuda::forward_sm90::latency {

enum class InputType { f16, bf16 };

// Which compiled kernel: kConfigs[config], its type, and what it may take for granted.
struct Instance {
  InputType type;
  int config;
  Cover cover;

  bool operator==(const Instance&) const = default;
};

// Clusters of two blocks: x query tiles, heads, batch entries.
struct Grid {
  unsigned int q_tiles, heads, batch;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  // Once a device, before the first launch: what to launch there.
  cudaError_t (*prepare)(cudaFunction_t& function);
  // early: the kernel may start before earlier ones in the stream have ended; it waits for them
  // before it touches memory.
  cudaError_t (*launch)(cudaFunction_t function, const Maps& maps, const Params& params,
                        const Grid& grid, bool early, cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

}  // namespace flashcore::cuda::forward_sm90::latency
