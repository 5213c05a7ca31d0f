// The options by which every command chooses a device and a kernel.
#pragma once

#include <string>

#include "bench/device/plan_choice.hpp"
#include "cli/options.hpp"

namespace flashcore::cli {

// `more_devices`: what else --device may be.
void declare_plan_choice(OptionSet& options, bench::PlanChoice& choice,
                         const std::string& more_devices = {});

}  // namespace flashcore::cli
