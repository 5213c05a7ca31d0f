// backward_sm80 as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm80::general {

Variant variant();

// Plans dBias, dSinks and dSlopes alone, for a kernel that computes the rest afterwards: dQ may be written.
Result<PlannedBackward> plan_gradients_of_options(const BackwardProblem& problem,
                                                  const PlanContext& context);

}  // namespace flashcore::cuda::backward_sm80::general
