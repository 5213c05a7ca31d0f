// What no latency kernel computes, on any GPU. Needs no CUDA header.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// One sentence, or empty. tensor_maps: the kernel reads its inputs by them.
std::string latency_refusal(const ForwardProblem& problem, bool tensor_maps);

}  // namespace flashcore::cuda::host
