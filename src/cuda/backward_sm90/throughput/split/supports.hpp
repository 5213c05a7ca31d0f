// What backward_sm90:split computes, and how it splits a problem. No CUDA header is needed here, so that both are tested
// in every build.
#pragma once

#include <cstdint>

#include "kernel/supports.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90::split {

BackwardSupports supports();

// Tiles of keys of a problem, in all heads.
int64_t tiles_of(const ForwardProblem& p);

// Blocks that share a tile of keys: what takes the fewest steps.
int splits_of(const ForwardProblem& p, int multiprocessors);

}  // namespace flashcore::cuda::backward_sm90::split
