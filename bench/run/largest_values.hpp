// The gate of amax_o and amax_s when rows of O are sampled; `verify` judges whole problems.
#pragma once

#include <string>

#include "bench/gate/sampled_gate.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Returns what is wrong, or "": amax_o does not round to the largest element of O, or amax_s is not
// a probability. O is [B, H, S, D] without NaN; both are read as ReadElements says.
std::string largest_values_failure(const Problem& problem, const ReadElements& inputs,
                                   const ReadElements& outputs);

}  // namespace flashcore::bench
