// What forward_fp8_sm90 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// One sentence, or empty. `targets`: what the kernel was compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

// Of forward_fp8_sm90_three besides.
std::string refuse_three(const ForwardProblem& problem);

// The same of forward_fp8_sm90_options.
std::string option_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets);

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
