// What backward_sm90 computes. No CUDA header is needed here, so that refusals are tested in every
// build.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

BackwardSupports supports();

// The config that a problem takes, as an index into kConfigs; with pairs one that has room for their bias.
int config_of(const ForwardProblem& p);
int pair_config_of(const ForwardProblem& p);

// Tiles of dBias, 128 queries and keys each.
int64_t bias_items(const BackwardProblem& problem);

// What backward_sm90:options computes: problems with a bias, a mask, ALiBi or dropout.
BackwardSupports option_supports();

}  // namespace flashcore::cuda::backward_sm90::throughput
