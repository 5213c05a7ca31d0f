// When a kernel leaves a backward pass that it can compute to those after it.
#pragma once

#include <string>

#include "kernel/kernel.hpp"

namespace flashcore {

// Where tiles of keys are enough for the GPU as they are.
std::string backward_sm90_split_declines(const BackwardProblem& problem,
                                         const PlanContext& context);

}  // namespace flashcore
