// What forward_sm80 does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "dispatch/kernels.hpp"

namespace flashcore {

// The rows of the family: 16-bit inputs, fp32 inputs, and any of them with the keys in splits.
enum class Sm80Kernel { half, f32, split };

// The row of kConfigs that computes a problem, or -1.
int forward_sm80_config(const ForwardProblem& problem);

// One sentence, or empty. `targets` are those that the kernels were built for: "80;89;90a".
std::string forward_sm80_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                 std::string_view targets, Sm80Kernel kernel = Sm80Kernel::half);

// Whether the instances without features compute the problem, given pointers at multiples of 16
// bytes: what is left when no tile needs a look at more than the band.
bool forward_sm80_is_plain(const ForwardProblem& problem);

}  // namespace flashcore
