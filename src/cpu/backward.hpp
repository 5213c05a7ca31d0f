// The SIMD backend's backward pass: blocked, streaming, threaded, every option.
#pragma once

#include <string>
#include <vector>

#include "kernel/kernel.hpp"
#include "problem/backward.hpp"

namespace flashcore::cpu {

std::string backward_refuses(const BackwardProblem& problem, const PlanContext& context);
// Configs with other key blocks, other parts of the keys, and fewer threads.
std::vector<std::string> backward_candidates(const BackwardProblem& problem,
                                             const PlanContext& context);
PlannedBackward plan_backward(const BackwardProblem& problem, const PlanContext& context);

}  // namespace flashcore::cpu
