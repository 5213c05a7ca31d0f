// Launching backward_sm90_wide: the host's side, without CUDA headers' device code.
//
//   begin_rows   notes of queries, zeros in the marks
//   an instance  blocks of queries and of keys: dQ, dK and dV
//   end_rows     blocks with gradients that are not finite are computed again
//
// With options the rows' launches are others, and so are the blocks' where entries differ or scores
// are capped.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/params.hpp"

namespace flashcore::cuda::backward_sm90::wide {

enum class InputType { f16, bf16 };

// Which compiled kernel.
struct Instance {
  InputType type;
  bool options;

  bool operator==(const Instance&) const = default;
};

// One row of the list of compiled kernels.
struct InstanceEntry {
  cudaError_t (*prepare)();  // once per device, before the first launch
  cudaError_t (*launch)(const Maps& maps, const OptionParams& params, cudaStream_t stream);
};

// Of an instance that was not compiled: one whose functions fail.
const InstanceEntry& find_instance(const Instance& instance);

// Once per device, before the first launch, which may not load anything while a graph is captured.
cudaError_t prepare_rows(InputType type);
cudaError_t begin_rows(InputType type, const Params& params, cudaStream_t stream);
cudaError_t end_rows(InputType type, const Params& params, cudaStream_t stream);
cudaError_t prepare_option_rows(InputType type);
cudaError_t begin_option_rows(InputType type, const OptionParams& params, cudaStream_t stream);
cudaError_t end_option_rows(InputType type, const OptionParams& params, cudaStream_t stream);

}  // namespace flashcore::cuda::backward_sm90::wide
