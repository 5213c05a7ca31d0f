// A score under a softcap, and the factor of its gradient.
#pragma once

#include "cuda/attention/softcap.cuh"
#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/common/options.hpp"

namespace flashcore::cuda::backward_sm90 {

struct CappedScore {
  float log2;   // in units of log2
  float slope;  // 1 - tanh^2
};

// `product`: of Q and K; -inf marks a pair that is not visible, and stays -inf.
__device__ __forceinline__ CappedScore capped_score(const Options& options, float product) {
  const float log2 = attention::capped_log2(product, options.cap);
  const float t = log2 * options.tanh_rate;
  return {product == attention::kNoKey ? product : log2, (1 - t) * (1 + t)};
}

}  // namespace flashcore::cuda::backward_sm90
