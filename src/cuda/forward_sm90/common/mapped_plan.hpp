// Plans of the latency kernels, whose copies go by tensor maps: all but which compiled kernel runs.
#pragma once

#include <string_view>

#include "cuda/forward_sm90/common/launch.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90 {

struct MappedKernel {
  std::string_view name;
  int block_q;  // queries of a cluster
  InstanceEntry instance;
};

InputType mapped_input_type(const ForwardProblem& p);

// Tensor maps have boxes of 64 rows.
Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  MappedKernel kernel);

// A row of the table of kernels, compiled for `targets`.
Kernel mapped_kernel(std::string_view name, std::string_view targets,
                     Result<PlannedKernel> (*plan)(const ForwardProblem&, const PlanContext&));

}  // namespace flashcore::cuda::forward_sm90
