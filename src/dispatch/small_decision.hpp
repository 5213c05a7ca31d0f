// Which of the kernels for small problems is the choice. By what is known without data, and not by
// the batch where that is forbidden.
#pragma once

#include <string>

#include "dispatch/kernels.hpp"
#include "dispatch/small_choice.hpp"

namespace flashcore {

// Of those for Hopper: one sentence why the choice is another kernel, or empty where `is_chosen`.
std::string small_declines(const ForwardProblem& p, const PlanContext& context,
                           bool (SmallChoice::*is_chosen)() const);

// The same of forward_small_sm80, beside forward_sm80: the kernels for Hopper come before it.
std::string small_sm80_declines(const ForwardProblem& p, const PlanContext& context);

}  // namespace flashcore
