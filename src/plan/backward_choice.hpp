// Which of the kernels that compute a backward pass is the fastest.
#pragma once

#include <string>

#include "kernel/kernel.hpp"

namespace flashcore {

// backward_sm90:split leaves a problem to backward_sm90 where tiles of keys are enough for the GPU, or have so few
// queries that sums in any order are faster. docs/results.md has the times.
std::string sm90_split_declines(const BackwardProblem& problem, const PlanContext& context);

}  // namespace flashcore
