// Problems with e4m3 inputs and one scale per head, quantised as a user would.
#pragma once

#include <cstdint>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// Gives a problem e4m3 inputs, an fp16 O, and scales of q, k and v per batch entry and head.
Problem with_fp8_inputs(const Problem& problem);

// Draws q, k and v from N(0, 1), divides each head by scale = its largest magnitude / 448 (1 if
// that is 0), and rounds to e4m3. The problem must come from with_fp8_inputs.
void fill_fp8_inputs(HostProblem& host, uint64_t seed);

}  // namespace flashcore::bench
