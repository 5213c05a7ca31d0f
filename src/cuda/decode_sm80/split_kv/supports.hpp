// Problems that decode_sm80 does not support. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

// Returns the row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// Blocks per launch: as many as the device runs at once. For supported problems.
int64_t block_count(const ForwardProblem& problem, const DeviceInfo& device);

// Returns an upper bound of units per launch, for any lengths.
int64_t unit_count(const ForwardProblem& problem, const PlanContext& context);

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const PlanContext& context,
                    std::string_view targets);

}  // namespace flashcore::cuda::decode_sm80::split_kv
