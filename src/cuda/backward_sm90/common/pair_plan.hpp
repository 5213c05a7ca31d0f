// The host's half of pairs (pairs.hpp).
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/backward_sm90/common/pairs.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// Everything but the pointers and the mask's bits.
void set_pairs(Pairs& pairs, const BackwardProblem& problem);

// The pointers of a run, and whether tiles of its bias can be copied.
void bind_pairs(Pairs& pairs, const ForwardProblem& p, const Arguments& args);

// Encodes the map of a bias whose tiles are copied: boxes of `queries` and 64 keys.
cudaError_t encode_bias_map(CUtensorMap& map, const ForwardProblem& p, const void* bias,
                            int queries);

}  // namespace flashcore::cuda::backward_sm90
