// What decode_sm90 computes. Needs no CUDA header.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

// The row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// Shares of the keys of a launch, for a problem that is not refused. whole: no item is cut, and the first kernel stores
// all rows.
struct Shares {
  int64_t count;
  bool whole;
};
int64_t tile_count(const ForwardProblem& problem);
Shares shares_of(const ForwardProblem& problem, const PlanContext& context);

// Returns whether tiles of keys are boxes of tensor maps, where K and V begin at aligned addresses.
bool has_boxes(const ForwardProblem& problem);

Supports supports();

}  // namespace flashcore::cuda::decode_sm90::stream_kv
