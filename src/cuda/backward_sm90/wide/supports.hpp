// Problems that backward_sm90_wide does not support. Needs no
// CUDA header, so that refusals are tested in every build.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90::wide {

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::backward_sm90::wide
