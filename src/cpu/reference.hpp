// The judge: attention in fp64, written from docs/semantics.md line by line, never optimised.
#pragma once

#include "problem/problem.hpp"

namespace flashcore::cpu {

// Computes O and LSE of a validated run. Memory: the keys and values of a head as fp64.
// Throws std::bad_alloc.
void reference_forward(const ForwardProblem& problem, const Arguments& arguments, int threads);

}  // namespace flashcore::cpu
