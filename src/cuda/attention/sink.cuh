// A sink as one more score of a row.
#pragma once

#include "cuda/attention/units.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention {

// Returns what a sink adds to a denominator of powers of two relative to `top`. `log2`: the sink in
// units of log2, at most fp32's largest number. A sink of +inf or NaN gives NaN, as a score would.
__device__ __forceinline__ float sink_share(float sink, float log2, float top) {
  return sink == kNoKey ? 0.0F : fmaf(sink, 0.0F, ptx::exp2_approx(log2 - top));
}

}  // namespace flashcore::cuda::attention
