// How partial results become one. Of each split: its reference, a score (-inf without a key), the
// sum of 2^((score - reference) * unit), and that sum's outputs. constexpr: the kernel and host
// tests share it.
#pragma once

#include <limits>

namespace flashcore::cuda::attention {

// What a split weighs beside the largest reference. exp2: 2^x, 0 for -inf.
template <class Exp2>
constexpr float split_weight(float reference, float largest, float unit, Exp2 exp2) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  return exp2((reference - (largest == kNone ? 0.0F : largest)) * unit);
}

// An output with a split's part of it. NaN and infinities count whatever their weight is rounded
// to.
constexpr float with_part(float output, float weight, float part) {
  const bool finite = part - part == 0;
  return finite ? output + weight * part : output + part;
}

}  // namespace flashcore::cuda::attention
