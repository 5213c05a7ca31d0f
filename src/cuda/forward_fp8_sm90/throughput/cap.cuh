// A softcap whose scale is known only on the device, as the scales of Q and K are in its memory.
#pragma once

#include <limits>

#include "cuda/attention/softcap.cuh"
#include "cuda/attention/units.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

__device__ __forceinline__ float clamped_to_finite(float x) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return fminf(fmaxf(x, -kLargest), kLargest);
}

// `scale`: the factor from products to scores, a finite number.
__device__ __forceinline__ attention::SoftcapParams softcap_of(float cap, float scale) {
  return {clamped_to_finite(__fdividef(scale, cap)), clamped_to_finite(scale * attention::kLog2E),
          clamped_to_finite(cap * attention::kLog2E)};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
