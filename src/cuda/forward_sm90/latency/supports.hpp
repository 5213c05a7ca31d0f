// What forward_sm90_latency and forward_sm80_latency do not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/forward_sm90/latency/config.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {

// One sentence, or empty. `targets`: what the kernels were compiled for, as in cuda_support.hpp.
std::string forward_sm90_latency_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                         std::string_view targets);

// The same of forward_sm80_latency.
std::string forward_sm80_latency_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                         std::string_view targets);

// What its instance for a problem may take for granted.
cuda::forward_sm90::latency::Cover forward_sm90_latency_cover(const ForwardProblem& problem);

// Whether every query sees every key and tiles of keys are full: no tile needs a mask.
bool forward_sm90_latency_is_whole(const ForwardProblem& problem);

}  // namespace flashcore
