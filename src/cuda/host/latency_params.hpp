// What the latency kernels are told about a problem.
#pragma once

#include "cuda/attention/latency/params.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Everything but the pointers.
attention::latency::Params latency_params(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
