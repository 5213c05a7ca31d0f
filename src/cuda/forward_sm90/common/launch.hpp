// Launching the kernels of Hopper whose copies go by tensor maps and that compute one tile of
// queries: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cuda/attention/latency/params.hpp"

namespace flashcore::cuda::forward_sm90 {

using attention::BandLimits;
using attention::latency::Cover, attention::latency::Params;

enum class InputType { f16, bf16 };

struct Maps {
  CUtensorMap q, k, v;
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

}  // namespace flashcore::cuda::forward_sm90
