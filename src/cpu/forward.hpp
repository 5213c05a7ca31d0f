// The SIMD backend of the CPU: blocked, streaming, threaded; the whole of docs/semantics.md.
#pragma once

#include <string>
#include <vector>

#include "kernel/kernel.hpp"
#include "problem/problem.hpp"

namespace flashcore::cpu {

std::string forward_refuses(const ForwardProblem& problem, const PlanContext& context);
// Configs with other blocks of queries and keys, other splits of long caches, and fewer threads.
std::vector<std::string> forward_candidates(const ForwardProblem& problem,
                                            const PlanContext& context);
PlannedKernel plan_forward(const ForwardProblem& problem, const PlanContext& context);

}  // namespace flashcore::cpu
