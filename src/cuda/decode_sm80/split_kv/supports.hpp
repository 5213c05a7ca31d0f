// What decode_sm80 computes. Needs no CUDA header.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

// The row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// Blocks of a launch: as many as the device runs together. Of a problem that is not refused.
int64_t block_count(const ForwardProblem& problem, const DeviceInfo& device);

// Units of a launch at most, whatever the lengths are.
int64_t unit_count(const ForwardProblem& problem, const PlanContext& context);

Supports supports();

}  // namespace flashcore::cuda::decode_sm80::split_kv
