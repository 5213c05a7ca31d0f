// Launching backward_sm80: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/backward_sm80/general/params.hpp"

namespace flashcore::cuda::backward_sm80::general {

// Which compiled kernel: its row of kConfigs, or of kJointConfigs, its type, what it writes and what it looks for.
// fp32 and dBias have only instances with all features.
struct Instance {
  ElementType type;
  int config;
  Output output;
  Features features;

  bool operator==(const Instance&) const = default;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)();  // once per device, before the first launch
  cudaError_t (*launch)(const Params& params, unsigned int blocks, cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

// Loads the kernels below: once per device, before the first launch, which may not load anything
// while a graph is captured.
cudaError_t prepare_rows();

// LSE and delta of `rows` rows, and zeros in the counters of a joint kernel.
cudaError_t launch_note_rows(const Params& params, int64_t rows, cudaStream_t stream);

// dQ from the sums of a joint kernel, by a block a tile of queries; more than 0.
cudaError_t launch_store_dq(const Params& params, int joint_config, unsigned int blocks,
                            cudaStream_t stream);

// Zeros in `rows` rows of a packed target, head_rows of each head; more than 0.
cudaError_t launch_zero_rows(const Target& target, int64_t rows, int64_t head_rows,
                             cudaStream_t stream);

// From what rows add to the sums of heads. There is at least one sum.
cudaError_t launch_add_rows(const Params& params, const HeadSum& sum, cudaStream_t stream);

}  // namespace flashcore::cuda::backward_sm80::general
