// What forward_sm80 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/kernels.hpp"

namespace flashcore {

// One sentence, or empty. `targets` are those that the kernels were built for: "80;89;90a".
std::string forward_sm80_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                 std::string_view targets);

// Whether the instances without features compute the problem, given pointers at multiples of 16
// bytes: what is left when no tile needs a look at more than the band.
bool forward_sm80_is_plain(const ForwardProblem& problem);

}  // namespace flashcore
