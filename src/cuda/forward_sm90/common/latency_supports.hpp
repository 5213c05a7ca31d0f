// What forward_sm90_latency and forward_sm90_latency:wide compute. Needs no CUDA header.
#pragma once

#include <string_view>

#include "cuda/attention/latency/params.hpp"
#include "kernel/supports.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90 {

Supports latency_supports();

// What the instance for a problem may take for granted.
attention::latency::TileBounds tile_bounds_of(const ForwardProblem& problem);
// How names of instances spell it: any, band or whole.
std::string_view tile_bounds_name(attention::latency::TileBounds bounds);

}  // namespace flashcore::cuda::forward_sm90
