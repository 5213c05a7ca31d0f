// One softcapped score, accurate for every cap: used where a
// main loop's polynomial (softcap.hpp: near_cap) is not valid.
#pragma once

#include "cuda/attention/softcap.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention {

__device__ __forceinline__ float capped_log2(float score, const SoftcapParams& p) {
  return capped_log2(
      score, p, [](float x) { return ptx::exp2_approx(x); },
      [](float x) { return __fdividef(1.0F, x); });
}

}  // namespace flashcore::cuda::attention
