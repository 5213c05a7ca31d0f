// The options by which every command chooses a device and a kernel.
#pragma once

#include "cli/options.hpp"
#include "cli/plan_choice.hpp"

namespace flashcore::cli {

void declare_plan_choice(OptionSet& options, PlanChoice& choice);

}  // namespace flashcore::cli
