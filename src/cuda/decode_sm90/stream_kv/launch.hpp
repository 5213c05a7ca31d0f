// Launching decode_sm90: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/params.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::decode::InputType;

// Which compiled kernel: Q's type and kConfigs[config].
struct Instance {
  InputType type;
  int config;

  bool operator==(const Instance&) const = default;
};

// Blocks: tiles of rows, shares of the keys.
struct Grid {
  unsigned int tiles, shares;
};

// Of the second kernel.
struct JoinGrid {
  unsigned int blocks, threads;
  int tile_shift;  // of the first kernel's tile: log2 of its rows
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)(cudaFunction_t& function);  // once per device, before the first launch
  cudaError_t (*launch)(cudaFunction_t function, const Params& params, const Maps& maps,
                        const Grid& grid, bool early, cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

// The kernel of join: once per device, before the first launch, which may not load anything while a
// graph is captured.
cudaError_t prepare_join(cudaFunction_t& function);

// From the partial results of all parts to O and LSE.
cudaError_t join(cudaFunction_t function, const Params& params, const JoinGrid& grid,
                 cudaStream_t stream);

}  // namespace flashcore::cuda::decode_sm90::stream_kv
