// Sizes that no CUDA kernel supports, because indices have 32 bits.
// Needs no CUDA header, so that refusals are tested in every build.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Returns an empty string, or a sentence if Q or K has attention::kMostRows rows or more.
std::string refuse_rows(const ForwardProblem& p);

// Returns an empty string, or a sentence if there are more tiles of block_q queries than blocks per launch.
std::string refuse_tiles(const ForwardProblem& p, int block_q);

}  // namespace flashcore::cuda::host
