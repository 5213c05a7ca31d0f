// Launching forward_sm90_throughput: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_sm90/throughput/params.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

enum class InputType { f16, bf16 };

// Which compiled kernel: kConfigs[config], its type, whether scores are transformed (softcap, or a
// scale that is not positive), and whether keys and values lie in pages.
struct Instance {
  InputType type;
  int config;
  bool features;
  bool paged;

  bool operator==(const Instance&) const = default;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)();  // once per device, before the first launch
  cudaError_t (*launch)(const Maps& maps, const PagedParams& params, unsigned int blocks,
                        cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

}  // namespace flashcore::cuda::forward_sm90::throughput
