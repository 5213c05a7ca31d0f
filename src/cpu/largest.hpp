// The outputs of largest values: threads add their rows' values, in any order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore::cpu {

inline bool wants_largest(const ForwardProblem& p) {
  return std::any_of(kLargestOutputs.begin(), kLargestOutputs.end(),
                     [&](const LargestValue& one) { return (p.*one.output).present; });
}

// Clears all elements. Call it before the first row is added.
void clear_largest(const ForwardProblem& p, const Arguments& args);

// Adds a row's values, in the order of kLargestOutputs. NaN counts as the largest.
void add_largest(const ForwardProblem& p, const Arguments& args, int64_t batch, int64_t head,
                 const std::array<float, kLargestOutputs.size()>& values);

// Returns the larger of two numbers; NaN is larger than all.
template <class Float>
Float larger(Float a, Float b) {
  return b > a || b != b ? b : a;  // NOLINT(misc-redundant-expression): NaN
}

}  // namespace flashcore::cpu
