// The judge of gradients: the backward pass in fp64, written from docs/semantics.md.
#pragma once

#include "problem/backward.hpp"

namespace flashcore::cpu {

// Computes every gradient of a validated run. Memory: the keys, values and their gradients of a
// head as fp64, and the gradients of bias, sinks and slopes.
//
// `intermediate` is f64 for the judge itself, which computes O and LSE anew and does not read what
// the forward pass left. Any other type gives the naive unfused computation in that type, the
// yardstick of the gates: it reads O, and rounds scores, probabilities and their gradients to the
// type; with f32 it also sums in it. Throws std::bad_alloc.
//
// `squares`: of each gradient, the sum of the squares of the terms that it is a sum of: where they
// cancel, it is what rounding errors are to be measured against.
struct SquaredTerms {
  double dq = 0, dk = 0, dv = 0, d_bias = 0, d_sinks = 0, d_alibi_slopes = 0;
};
void reference_backward(const BackwardProblem& problem, const BackwardArguments& arguments,
                        int threads, DType intermediate = DType::f64,
                        SquaredTerms* squares = nullptr);

}  // namespace flashcore::cpu
