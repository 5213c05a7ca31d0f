// What kernels of backward_sm90 compute alike. No CUDA header is needed here, so that refusals are
// tested in every build.
#pragma once

#include <cstdint>

#include "kernel/supports.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// TMA copies columns by so many, and fills the tiles' columns past them with zeros.
inline constexpr int64_t kColumnStep = 8;

// Rows of all tiles of `block` queries or keys of a head, over all sequences.
int64_t query_rows(const ForwardProblem& p, int64_t block);
int64_t key_rows(const ForwardProblem& p, int64_t block);

BackwardSupports common_supports(HeadDims head_dims);

}  // namespace flashcore::cuda::backward_sm90
