// What mla_sm90 computes. Needs no CUDA header.
#pragma once

#include <cstdint>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::mla_sm90::latent {

// Of a problem that is not refused: tiles of rows of each query, and in all.
int64_t tiles_of_query(const ForwardProblem& problem);
int64_t tile_count(const ForwardProblem& problem);

// How many shares the keys are cut into: blocks of a tile of rows.
int64_t share_count(const ForwardProblem& problem, const PlanContext& context);

// Whether some row may be left to the second kernel, whatever the lengths are.
bool has_joins(const ForwardProblem& problem, const PlanContext& context);

Supports supports();

}  // namespace flashcore::cuda::mla_sm90::latent
