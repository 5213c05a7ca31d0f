// Launching backward_sm90_split's tiles: the host's side, without CUDA headers' device code. The launches before and
// after them are those of backward_sm90 (throughput/launch.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/throughput/launch.hpp"

namespace flashcore::cuda::backward_sm90::split {

// Which compiled kernel: its type, kConfigs[config], and blocks of a cluster.
struct Instance {
  throughput::InputType type;
  int config, splits;

  bool operator==(const Instance&) const = default;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)();  // once per device, before the first launch
  cudaError_t (*launch)(const throughput::Maps& maps, const throughput::Params& params,
                        cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

}  // namespace flashcore::cuda::backward_sm90::split
