// What forward_sm80_latency does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm80::latency {

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::forward_sm80::latency
