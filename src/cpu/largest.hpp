// The outputs amax_o and amax_s: threads add their rows' values, in any order.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore::cpu {

inline bool wants_largest(const ForwardProblem& p) { return p.amax_o.present || p.amax_s.present; }

// Sets all elements to 0. Call it before the first row is added.
void clear_largest(const ForwardProblem& p, const Arguments& args);

// Adds a row's largest |O| and probability, each at least 0, or NaN, which counts as the largest.
void add_largest(const ForwardProblem& p, const Arguments& args, int64_t batch, int64_t head,
                 float largest_o, float largest_p);

// Returns the larger of two such numbers.
template <class Float>
Float larger(Float a, Float b) {
  return b > a || b != b ? b : a;  // NOLINT(misc-redundant-expression): NaN
}

}  // namespace flashcore::cpu
