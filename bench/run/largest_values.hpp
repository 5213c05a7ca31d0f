// The gate of amax_o and amax_s where rows of O are sampled: `verify` judges whole problems.
#pragma once

#include <string>

#include "bench/gate/sampled_gate.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// What is wrong, empty for nothing: amax_o is not what the largest element of O was rounded from, or
// amax_s is no probability. O is [B, H, S, D] without NaN; both read elements as ReadElements says.
std::string largest_values_failure(const Problem& problem, const ReadElements& inputs,
                                   const ReadElements& outputs);

}  // namespace flashcore::bench
