// Problems that backward_sm80 does not support. Needs no
// CUDA header, so that refusals are tested in every build.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm80::general {

// Returns whether products are computed in fp32: for fp32 inputs, or if the types of inputs and O differ.
bool computes_in_fp32(const BackwardProblem& problem);

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

}  // namespace flashcore::cuda::backward_sm80::general
