// The options by which every command chooses a device and a kernel.
#pragma once

#include "bench/device/plan_choice.hpp"
#include "cli/options.hpp"

namespace flashcore::cli {

void declare_plan_choice(OptionSet& options, bench::PlanChoice& choice);

}  // namespace flashcore::cli
