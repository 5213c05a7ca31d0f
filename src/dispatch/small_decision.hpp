// Which of the kernels for small problems on Hopper is the choice.
#pragma once

#include <string>

#include "dispatch/kernels.hpp"
#include "dispatch/small_choice.hpp"

namespace flashcore {

// One sentence why the choice is another kernel, or empty where `is_chosen`. By what is known
// without data, and does not depend on the batch where that is forbidden.
std::string small_declines(const ForwardProblem& p, const PlanContext& context,
                           bool (SmallChoice::*is_chosen)() const);

}  // namespace flashcore
