// What decode kernels do not compute. No CUDA header is needed here, so that refusals are tested in every
// build.
#pragma once

#include <string>

#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Empty, or a sentence: of types and dropout; of bias and masks; of numbers of rows.
std::string refuse_decode(const ForwardProblem& p);
std::string refuse_decode_pairs(const ForwardProblem& p);
std::string refuse_decode_rows(const ForwardProblem& p);

}  // namespace flashcore::cuda::host
