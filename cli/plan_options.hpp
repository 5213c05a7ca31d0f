// The options with which every command chooses a device and a kernel.
#pragma once

#include <string>

#include "bench/device/plan_choice.hpp"
#include "cli/options.hpp"

namespace flashcore::cli {

// `more_devices`: additional values of --device.
void declare_plan_choice(OptionSet& options, bench::PlanChoice& choice,
                         const std::string& more_devices = {});

}  // namespace flashcore::cli
