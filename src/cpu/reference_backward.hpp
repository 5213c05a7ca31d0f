// The judge of gradients: the backward pass in fp64, written from docs/semantics.md.
#pragma once

#include "problem/backward.hpp"

namespace flashcore::cpu {

// Computes every gradient of a validated run. Memory: one head's keys and values and their
// gradients as fp64, and the gradients of bias, sinks and slopes.
//
// `intermediate` is f64 for the judge itself, which recomputes O and LSE and does not read the
// forward pass' output. Any other type gives the naive unfused computation in that type, the
// baseline of the gates: it reads O, and rounds scores, probabilities and their gradients to the
// type; with f32 it also sums in it. Throws std::bad_alloc.
//
// `squares` gets, per gradient, the sum of the squares of all terms. If the terms cancel, rounding
// errors must be measured against this and not against the gradient.
struct SquaredTerms {
  double dq = 0, dk = 0, dv = 0, d_bias = 0, d_sinks = 0, d_alibi_slopes = 0;
};
void reference_backward(const BackwardProblem& problem, const BackwardArguments& arguments,
                        int threads, DType intermediate = DType::f64,
                        SquaredTerms* squares = nullptr);

}  // namespace flashcore::cpu
