// Sets the parameters common to all launches of this folder from a problem.
#pragma once

#include <cstddef>
#include <span>

#include "cuda/forward_fp8_sm90/throughput/params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

enum class Terms { as_needed, two };

// Sets everything except the pointers.
void set_params(Params& params, const ForwardProblem& p, int block_q, Terms terms);

// Sets the pointers of a run.
void bind_params(Params& params, const ForwardProblem& p, const Arguments& args,
                 std::span<std::byte> workspace);

// Returns whether all tensors begin at multiples of 16 bytes, as copies require.
bool are_aligned(const ForwardProblem& p, const Arguments& args);

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
