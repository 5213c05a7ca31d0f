// Plans of the kernels for small problems whose copies go by tensor maps: all but which compiled
// kernel runs, and on what grid.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string_view>

#include "cuda/forward_small_sm90/params.hpp"
#include "dispatch/kernels.hpp"

namespace flashcore {

struct MappedKernel {
  std::string_view name;
  // Once a device, before the first launch: what to launch there.
  cudaError_t (*prepare)(cudaFunction_t& function);
  std::function<cudaError_t(cudaFunction_t function, const cuda::forward_small_sm90::Maps&,
                            const cuda::forward_small_sm90::Params&, cudaStream_t)>
      launch;
};

// Tensor maps have boxes of 64 rows. What begins at pointers that are not at multiples of 16 bytes
// is forward_sm80's.
Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  MappedKernel kernel);

}  // namespace flashcore
