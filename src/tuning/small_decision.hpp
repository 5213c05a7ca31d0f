// Which of the kernels for small problems is the choice. By what is known without data, and not by
// the batch where that is forbidden.
#pragma once

#include <string>

#include "kernel/kernel.hpp"
#include "tuning/small_choice.hpp"

namespace flashcore {

// Of those for Hopper: one sentence why the choice is another kernel, or empty where `is_chosen`.
std::string sm90_latency_declines(const ForwardProblem& p, const PlanContext& context,
                                  bool (SmallChoice::*is_chosen)() const);

// The same of forward_sm80_latency, beside forward_sm80_throughput: the kernels for Hopper come
// before it.
std::string sm80_latency_declines(const ForwardProblem& p, const PlanContext& context);

}  // namespace flashcore
