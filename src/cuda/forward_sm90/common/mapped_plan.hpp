// Plans of the kernels for small problems whose copies go by tensor maps: all but which compiled
// kernel runs.
#pragma once

#include <string_view>

#include "cuda/forward_sm90/latency/launch.hpp"
#include "kernel/kernel.hpp"
#include "tuning/small_choice.hpp"

namespace flashcore {

struct MappedKernel {
  std::string_view name;
  int block_q;  // queries of a cluster
  cuda::forward_sm90::latency::InstanceEntry instance;
};

cuda::forward_sm90::latency::InputType mapped_input_type(const ForwardProblem& p);

// Tensor maps have boxes of 64 rows. What begins at pointers that are not at multiples of 16 bytes
// is forward_sm80_throughput's.
Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  MappedKernel kernel);

// A row of the table of kernels, compiled for `targets`; `is_chosen` says when it is the choice.
Kernel mapped_kernel(std::string_view name, std::string_view targets,
                     bool (SmallChoice::*is_chosen)() const,
                     Result<PlannedKernel> (*plan)(const ForwardProblem&, const PlanContext&));

}  // namespace flashcore
