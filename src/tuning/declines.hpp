// Why a kernel leaves a problem that it computes to another, which is faster there: by what is known
// without data, and not by the batch where that is forbidden.
#pragma once

#include <string>

#include "kernel/kernel.hpp"
#include "tuning/small_choice.hpp"

namespace flashcore::tuning {

// Each is one sentence, or empty.

// forward_sm90_throughput: where forward_sm80_throughput splits the keys.
std::string sm90_throughput_declines(const ForwardProblem& p, const PlanContext& context);

// forward_sm90_latency and forward_sm90_latency_wide: where `is_chosen` is false. forward_sm90:
// what runs where neither does, if it takes the problem.
std::string sm90_latency_declines(const ForwardProblem& p, const PlanContext& context,
                                  const Kernel& forward_sm90,
                                  bool (SmallChoice::*is_chosen)() const);

// forward_sm80_latency, beside forward_sm80_throughput: the kernels for Hopper come before it.
std::string sm80_latency_declines(const ForwardProblem& p, const PlanContext& context);

}  // namespace flashcore::tuning
