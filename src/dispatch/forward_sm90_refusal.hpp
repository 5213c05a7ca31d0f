// What forward_sm90 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/kernels.hpp"

namespace flashcore {

// One sentence, or empty. `targets` are those that the kernels were built for: "80;89;90a".
std::string forward_sm90_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                 std::string_view targets);

// Why it leaves a problem that it computes to forward_sm80: one sentence, or empty.
std::string forward_sm90_decline(const ForwardProblem& problem, const PlanContext& context);

}  // namespace flashcore
