// Sizes that no CUDA kernel takes, because it counts in 32 bits. No CUDA header is needed here, so
// that refusals are tested in every build.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Empty, or a sentence: more tiles of block_q queries than a launch has blocks.
std::string refuse_tiles(const ForwardProblem& p, int block_q);

// For decode kernels, which count rows of a key/value head: refuses attention::kMostRows or more of them, and more
// rows in all heads than a launch has blocks.
std::string refuse_decode_rows(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
