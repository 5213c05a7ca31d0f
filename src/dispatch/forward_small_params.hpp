// What the kernels for small problems are told, from a problem.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/params.hpp"
#include "dispatch/kernels.hpp"

namespace flashcore {

// Whether entries have lengths or diagonals of their own, in device memory.
bool small_entries_vary(const ForwardProblem& p);

// Everything but the pointers.
cuda::forward_small_sm90::Params small_params(const ForwardProblem& p);

}  // namespace flashcore
