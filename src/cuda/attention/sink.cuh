// A sink beside the scores of a row.
#pragma once

#include "cuda/attention/units.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention {

// What a sink adds to a denominator of powers of two against `top`: `log2` is the sink in their
// units, where it fits. One of +inf or NaN makes NaN of it, as a score would.
__device__ __forceinline__ float sink_share(float sink, float log2, float top) {
  return sink == kNoKey ? 0.0F : ptx::exp2_approx(log2 - top) + (sink - sink);
}

}  // namespace flashcore::cuda::attention
