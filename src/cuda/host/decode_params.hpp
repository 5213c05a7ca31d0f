// What decode kernels are told about a problem.
#pragma once

#include "cuda/attention/decode/params.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Everything but the pointers.
void set_decode_params(attention::decode::Params& params, const ForwardProblem& p,
                       bool batch_invariant);

// A tree mask; its pointer comes with a run.
attention::decode::TreeBits tree_bits_of(const ForwardProblem& p);

// The pointers of a run, and what follows from how they are aligned.
void bind_decode_params(attention::decode::Params& params, const ForwardProblem& p,
                        const Arguments& args);

}  // namespace flashcore::cuda::host
