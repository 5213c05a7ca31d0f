// What forward_fp8_converted does not compute, whatever the 16-bit kernels do. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::converted {

// One sentence, or empty. `targets`: what the kernel was compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::forward_fp8::converted
