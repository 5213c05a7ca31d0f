// Problems that no latency kernel supports, on any GPU. Needs no CUDA header.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Returns one sentence, or an empty string. tensor_maps: the kernel reads its inputs through them.
std::string latency_refusal(const ForwardProblem& problem, bool tensor_maps);

}  // namespace flashcore::cuda::host
