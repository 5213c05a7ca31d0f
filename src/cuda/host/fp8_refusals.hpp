// What kernels with products in fp8 refuse alike: one sentence each, empty when they do not.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Q of another type than e4m3, O of another than f32, f16 or bf16, LSE of another than f32.
std::string refuse_e4m3_types(const ForwardProblem& p);

// What belongs to a pair of a query and a key: bias, mask, ALiBi, dropout.
std::string refuse_pair_options(const ForwardProblem& p);

// Scales of K and V that differ between blocks of keys.
std::string refuse_block_scales(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
