// What forward_sm90_latency and forward_sm90_latency_wide do not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/attention/latency/params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90 {

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string latency_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                            std::string_view targets);

// What the instance for a problem may take for granted.
attention::latency::Cover cover_of(const ForwardProblem& problem);
// How names of instances spell it: any, band or whole.
std::string_view cover_name(attention::latency::Cover cover);

}  // namespace flashcore::cuda::forward_sm90
