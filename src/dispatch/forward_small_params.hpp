// What the kernels for small problems are told, from a problem and the pointers of a run.
#pragma once

#include <cstdint>

#include "cuda/forward_small_sm90/params.hpp"
#include "dispatch/kernels.hpp"

namespace flashcore {

// Whether entries have lengths or diagonals of their own, in device memory.
bool small_entries_vary(const ForwardProblem& p);

// Everything but the pointers.
cuda::forward_small_sm90::Params small_params(const ForwardProblem& p);

void bind_small(cuda::forward_small_sm90::Params& params, const ForwardProblem& p,
                const Arguments& args);

// Whether rows that are aligned to each other are so in memory: 16 bytes.
bool small_is_aligned(const Arguments& args);

}  // namespace flashcore
