// Problems that forward_sm90_latency and forward_sm90_latency_wide do not support. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/attention/latency/params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90 {

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string latency_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                            std::string_view targets);

// Returns what the instance for a problem may assume.
attention::latency::Cover cover_of(const ForwardProblem& problem);
// Returns its spelling in names of instances: any, band or whole.
std::string_view cover_name(attention::latency::Cover cover);

}  // namespace flashcore::cuda::forward_sm90
