// What forward_small_sm90 and forward_small_sm80 do not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/forward_small_sm90/config.hpp"
#include "dispatch/kernels.hpp"

namespace flashcore {

// One sentence, or empty. `targets`: what the kernels were compiled for, as in cuda_support.hpp.
std::string forward_small_sm90_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                       std::string_view targets);

// The same of forward_small_sm80.
std::string forward_small_sm80_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                       std::string_view targets);

// What its instance for a problem may take for granted.
cuda::forward_small_sm90::Cover forward_small_sm90_cover(const ForwardProblem& problem);

// Whether every query sees every key and tiles of keys are full: no tile needs a mask.
bool forward_small_sm90_is_whole(const ForwardProblem& problem);

}  // namespace flashcore
