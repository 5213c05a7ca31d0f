// Launching decode_sm80: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/params.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::decode::InputType;

// Which compiled kernel: Q's type and kConfigs[config].
struct Instance {
  InputType type;
  int config;

  bool operator==(const Instance&) const = default;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)();  // once per device, before the first launch
  cudaError_t (*launch)(const PairParams& params, unsigned int blocks, cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

// Loads the kernels of combine_parts: once per device, before the first launch, which may not load
// anything while a graph is captured.
cudaError_t prepare_combine();

// From the partial results of all parts to O and LSE.
cudaError_t combine_parts(const Params& params, cudaStream_t stream);

}  // namespace flashcore::cuda::decode_sm80::split_kv
