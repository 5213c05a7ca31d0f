// What backward_sm90_wide refuses. No CUDA header is needed here, so that refusals are tested in every
// build.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90::wide {

// One sentence, or empty. `targets`: what the kernel was compiled for, as in device_code.hpp.
std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::backward_sm90::wide
