// What decode_sm90 does not compute. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

// The row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// Of a problem that is not refused: tiles of rows, and shares of the keys, of a launch.
int64_t tile_count(const ForwardProblem& problem);
int64_t share_count(const ForwardProblem& problem, const DeviceInfo& device);

// Whether tiles of keys are boxes of tensor maps, where K and V begin at aligned addresses.
bool has_boxes(const ForwardProblem& problem);

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const PlanContext& context,
                    std::string_view targets);

}  // namespace flashcore::cuda::decode_sm90::stream_kv
