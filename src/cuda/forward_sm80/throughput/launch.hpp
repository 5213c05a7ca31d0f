// Launching forward_sm80_throughput: the host's side, without CUDA headers' device code.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/params.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

enum class InputType { f16, bf16, f32, fp8 };

// Which compiled kernel: kConfigs[config] or kPairedRow, its type, and what every tile looks for.
// fp32 has only instances with all features, fp8 those of config_with_fp8 with Features::fp8, only
// types of 16 bits have some with Features::paged, and not every row has one with Features::scores.
struct Instance {
  InputType type;
  int config;
  Features features;

  bool operator==(const Instance&) const = default;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)();  // once per device, before the first launch
  cudaError_t (*launch)(const LaunchParams& params, unsigned int blocks, cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

// Loads the kernel of combine_splits: once per device, before the first launch, which may not load
// anything while a graph is captured.
cudaError_t prepare_combine();

// From the partial results of all splits to O and LSE.
cudaError_t combine_splits(const Params& params, cudaStream_t stream);

// Loads the kernel of zero_largest, as prepare_combine does.
cudaError_t prepare_zero();

// Largest values before there are any.
cudaError_t zero_largest(const LargestValues& values, cudaStream_t stream);

}  // namespace flashcore::cuda::forward_sm80::throughput
