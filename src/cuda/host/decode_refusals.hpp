// Problems that decode kernels do not support. Needs no
// CUDA header, so that refusals are tested in every build.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Each returns an empty string, or a sentence about types and dropout; bias and masks; row counts.
std::string refuse_decode(const ForwardProblem& p);
std::string refuse_decode_pairs(const ForwardProblem& p);
std::string refuse_decode_rows(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
