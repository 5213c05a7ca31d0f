// What backward_sm90:wide computes. No CUDA header is needed here, so that refusals are tested in every
// build.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::backward_sm90::wide {

BackwardSupports supports();

}  // namespace flashcore::cuda::backward_sm90::wide
