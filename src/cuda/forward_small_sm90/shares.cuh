// Adding up two partial results: how much each counts.
#pragma once

#include <limits>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/log2.cuh"

namespace flashcore::cuda::forward_small_sm90 {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLn2 = 0.6931471805599453F;

// How much each of two parts counts, given the log-sum-exps (of 2) of both; the log-sum-exp of all.
struct Shares {
  float own, other, lse;
};
__device__ __forceinline__ Shares shares_of(float own, float other) {
  const float reference = attention::finite_reference(fmaxf(own, other));
  const float a = ptx::exp2_approx(own - reference), b = ptx::exp2_approx(other - reference);
  const float sum = a + b, inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
  return {a * inverse, b * inverse, reference + ptx::log2_approx(sum)};
}

}  // namespace flashcore::cuda::forward_small_sm90
