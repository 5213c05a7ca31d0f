// The judge: attention in fp64, written from docs/semantics.md line by line, never optimised.
#pragma once

#include "problem/problem.hpp"

namespace flashcore::cpu {

// Computes O and LSE of a validated run. Memory: one head's keys and values as fp64.
//
// `intermediate` is the type that scores and probabilities are rounded to: f64 for the judge
// itself. A 16-bit type gives the naive unfused computation in that type, whose error is the
// baseline of the gates. Throws std::bad_alloc.
void reference_forward(const ForwardProblem& problem, const Arguments& arguments, int threads,
                       DType intermediate = DType::f64);

}  // namespace flashcore::cpu
