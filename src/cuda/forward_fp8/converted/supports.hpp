// Problems that forward_fp8_converted does not support with any 16-bit kernel. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::converted {

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::forward_fp8::converted
