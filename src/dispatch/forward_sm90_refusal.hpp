// What forward_sm90 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/kernels.hpp"

namespace flashcore {

// One sentence, or empty. `targets` are those that the kernels were built for: "80;89;90a".
std::string forward_sm90_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                 std::string_view targets);

// What keeps a kernel that is not verified from running by accident: a sentence unless `allowed`,
// the value of FLASHCORE_UNFINISHED or null, is "1".
std::string unfinished_refusal(const char* allowed);

}  // namespace flashcore
