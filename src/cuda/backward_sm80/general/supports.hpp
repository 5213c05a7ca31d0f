// What backward_sm80 computes. No CUDA header is needed here, so that refusals are tested in every
// build.
#pragma once

#include "kernel/supports.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm80::general {

// Returns whether products are in fp32: inputs are fp32, or the types of inputs and O differ.
bool computes_in_fp32(const BackwardProblem& problem);

BackwardSupports supports();

}  // namespace flashcore::cuda::backward_sm80::general
