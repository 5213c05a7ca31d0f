// The SIMD backend's backward pass: blocked, streaming, threaded, every option.
#pragma once

#include <string>

#include "kernel/kernel.hpp"
#include "problem/backward.hpp"

namespace flashcore::cpu {

std::string backward_refuses(const BackwardProblem& problem, const PlanContext& context);
PlannedBackward plan_backward(const BackwardProblem& problem, const PlanContext& context);

}  // namespace flashcore::cpu
