// What the kernels for small problems are told, from a problem.
#pragma once

#include "cuda/forward_sm90/latency/params.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {

// Everything but the pointers.
cuda::forward_sm90::latency::Params small_params(const ForwardProblem& p);

}  // namespace flashcore
