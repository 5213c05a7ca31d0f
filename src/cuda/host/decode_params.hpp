// Sets the parameters of decode kernels from a problem.
#pragma once

#include "cuda/attention/decode/params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Sets everything except the pointers.
void set_decode_params(attention::decode::Params& params, const ForwardProblem& p,
                       bool batch_invariant);

// Returns a tree mask; its pointer is set per run.
attention::decode::TreeBits tree_bits_of(const ForwardProblem& p);

// Sets the pointers of a run, and the members that depend on their alignment.
void bind_decode_params(attention::decode::Params& params, const ForwardProblem& p,
                        const Arguments& args);

}  // namespace flashcore::cuda::host
