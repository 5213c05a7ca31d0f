// Sizes that no CUDA kernel takes, because it counts in 32 bits. No CUDA header is needed here, so
// that refusals are tested in every build.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Empty, or a sentence: Q or K has attention::kMostRows rows or more.
std::string refuse_rows(const ForwardProblem& p);

// Empty, or a sentence: more tiles of block_q queries than a launch has blocks.
std::string refuse_tiles(const ForwardProblem& p, int block_q);

}  // namespace flashcore::cuda::host
