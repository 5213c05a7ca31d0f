// Problems that forward_fp8_v_rows does not support with any inner kernel,
// and the problem that it passes to the inner kernel. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::v_rows {

inline constexpr std::string_view kName = "forward_fp8_v_rows";

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

// Returns the pitch of V's rows in the workspace, in bytes: whole chunks of 16.
int64_t pitch_of(const ForwardProblem& problem);

// Returns the bytes of V in the workspace, before the inner kernel's part; kTooLarge if they do not fit.
int64_t rows_bytes(const ForwardProblem& problem);

// Returns the problem with V in rows in the workspace.
ForwardProblem in_rows(const ForwardProblem& problem);

// Blocks per launch, one per tile: over a head's keys, over its
// dimensions, and in total for all heads; kTooLarge if they do not fit.
struct Blocks {
  int64_t columns, dims, all;
};
Blocks blocks_of(const ForwardProblem& problem);

}  // namespace flashcore::cuda::forward_fp8::v_rows
