// The parameters of latency kernels that describe a problem.
#pragma once

#include "cuda/attention/latency/params.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Sets everything except the pointers.
attention::latency::Params latency_params(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
