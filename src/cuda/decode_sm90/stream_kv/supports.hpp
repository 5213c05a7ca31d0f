// Problems that decode_sm90 does not support. Needs no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

// Returns the row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// Tiles of rows, and shares of the keys, of a launch, for a supported
// problem. whole: no item is cut, and the first kernel stores all rows.
struct Shares {
  int64_t count;
  bool whole;
};
int64_t tile_count(const ForwardProblem& problem);
Shares shares_of(const ForwardProblem& problem, const PlanContext& context);

// Returns whether KV tiles are boxes of tensor maps, provided that K and V begin at aligned addresses.
bool has_boxes(const ForwardProblem& problem);

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const PlanContext& context,
                    std::string_view targets);

}  // namespace flashcore::cuda::decode_sm90::stream_kv
