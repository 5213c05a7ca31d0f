// Combines partial results. Each split has a reference, which is a score
// (-inf without a key), the sum of 2^((score - reference) * unit), and
// that sum's outputs. constexpr: shared by the kernel and host tests.
#pragma once

#include <limits>

namespace flashcore::cuda::attention {

// Returns a split's weight relative to the largest reference. exp2: 2^x, 0 for -inf.
template <class Exp2>
constexpr float split_weight(float reference, float largest, float unit, Exp2 exp2) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  return exp2((reference - (largest == kNone ? 0.0F : largest)) * unit);
}

// Adds a split's part to an output. NaN and infinities count even if the weight is rounded to
// 0.
constexpr float with_part(float output, float weight, float part) {
  const bool finite = part - part == 0;
  return finite ? output + weight * part : output + part;
}

}  // namespace flashcore::cuda::attention
