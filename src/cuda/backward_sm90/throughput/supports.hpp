// What backward_sm90 computes. No CUDA header is needed here, so that refusals are tested in every
// build.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

BackwardSupports supports();

// The config that a problem takes, as an index into kConfigs; with pairs one that has room for their bias.
int config_of(const ForwardProblem& p);
int pair_config_of(const ForwardProblem& p);

// What backward_sm90:options computes: problems with a bias, a mask, ALiBi or dropout.
BackwardSupports option_supports();

}  // namespace flashcore::cuda::backward_sm90::throughput
