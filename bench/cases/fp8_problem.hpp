// Problems whose inputs are e4m3 with one scale per head, made as a user would make them.
#pragma once

#include <cstdint>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// The same problem with e4m3 inputs, an fp16 O, and scales of q, k and v a batch entry and head.
Problem with_fp8_inputs(const Problem& problem);

// q, k and v drawn from N(0, 1), each head divided by scale = its largest magnitude / 448 (1 where
// that is 0) and rounded to e4m3. The problem is one of with_fp8_inputs.
void fill_fp8_inputs(HostProblem& host, uint64_t seed);

}  // namespace flashcore::bench
