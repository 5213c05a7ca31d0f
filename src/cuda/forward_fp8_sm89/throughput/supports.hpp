// What forward_fp8_sm89 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// One sentence, or empty. `targets`: what the kernel was compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
