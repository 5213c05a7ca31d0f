// What mla_sm90 computes. Needs no CUDA header.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::mla_sm90::latent {

// The tiles of rows of each query, and of all queries, in a problem that is not refused.
int64_t tiles_of_query(const ForwardProblem& problem);
int64_t tile_count(const ForwardProblem& problem);

// The tiles of keys of a sequence, at most.
int tiles_of_keys(const ForwardProblem& problem);

// How many shares the keys are cut into: blocks of a tile of rows.
int64_t share_count(const ForwardProblem& problem, const PlanContext& context);

// Returns whether some row may be left to the second kernel, for some lengths.
bool has_joins(const ForwardProblem& problem, const PlanContext& context);

Supports supports();

}  // namespace flashcore::cuda::mla_sm90::latent
