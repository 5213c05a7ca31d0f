// Problems that forward_fp8_sm90 does not support. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

// Returns the additional refusals of forward_fp8_sm90_three.
std::string refuse_three(const ForwardProblem& problem);

// Returns the refusals of forward_fp8_sm90_options.
std::string option_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets);

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
