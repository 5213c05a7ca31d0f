// What the kernels for small problems are told, from a problem.
#pragma once

#include "cuda/forward_small_sm90/params.hpp"
#include "dispatch/kernels.hpp"

namespace flashcore {

// Everything but the pointers.
cuda::forward_small_sm90::Params small_params(const ForwardProblem& p);

}  // namespace flashcore
