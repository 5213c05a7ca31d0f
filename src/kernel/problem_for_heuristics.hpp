// What a choice between kernels, tiles or ways to cut keys may look at; without CUDA's headers.
#pragma once

#include "kernel/kernel.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// The problem with the lengths that the choice goes by. Of a packed batch only the device knows the
// lengths: where max_seqlen is not given all entries count as equally long, otherwise one as that
// long, the others as sharing the rest, and the batch as if all had the length of most of the work.
// With PlanContext::batch_invariant a row's bits must not depend on what else is in the batch, and
// neither may the choice: one entry of 4,096 queries and keys, whatever the batch.
//
// Not a problem to compute: strides and options are `p`'s.
ForwardProblem problem_for_heuristics(const ForwardProblem& p, const PlanContext& context);

}  // namespace flashcore
