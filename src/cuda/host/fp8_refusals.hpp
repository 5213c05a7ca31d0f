// Refusals shared by kernels with products in fp8: each returns one sentence, or an empty string.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Refuses a Q other than e4m3, an O other than f32, f16 or bf16, and an LSE other than f32.
std::string refuse_e4m3_types(const ForwardProblem& p);

// Refuses options per pair of a query and a key: bias, mask, ALiBi, dropout.
std::string refuse_pair_options(const ForwardProblem& p);

// Refuses scales of K and V that differ between blocks of keys.
std::string refuse_block_scales(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
