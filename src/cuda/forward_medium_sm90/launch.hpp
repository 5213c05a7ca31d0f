// Launching forward_medium_sm90: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_small_sm90/params.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::Maps, forward_small_sm90::Params;

enum class InputType { f16, bf16 };

// Clusters: query tiles, heads, batch entries.
struct Grid {
  unsigned int q_tiles, heads, batch;
};

// One compiled kernel.
struct InstanceEntry {
  // Once a device, before the first launch: what to launch there.
  cudaError_t (*prepare)(cudaFunction_t& function);
  // early: the kernel may start before earlier ones in the stream have ended; it waits for them
  // before it touches memory.
  cudaError_t (*launch)(cudaFunction_t function, const Maps& maps, const Params& params,
                        const Grid& grid, bool early, cudaStream_t stream);
};

// whole: no tile of keys needs a mask.
InstanceEntry f16_instance(bool whole);
InstanceEntry bf16_instance(bool whole);
InstanceEntry find_instance(InputType type, bool whole);

}  // namespace flashcore::cuda::forward_medium_sm90
