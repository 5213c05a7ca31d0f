// A softcap whose scale is known only on the device, as the scales of Q and K are in its memory.
#pragma once

#include <limits>

#include "cuda/attention/softcap.cuh"
#include "cuda/attention/units.hpp"

namespace flashcore::cuda::attention::fp8 {

__device__ __forceinline__ float clamped_to_finite(float x) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return fminf(fmaxf(x, -kLargest), kLargest);
}

// `scale`: the factor from products to scores, a finite number.
__device__ __forceinline__ SoftcapParams softcap_of(float cap, float scale) {
  return {clamped_to_finite(__fdividef(scale, cap)), clamped_to_finite(scale * kLog2E),
          clamped_to_finite(cap * kLog2E)};
}

}  // namespace flashcore::cuda::attention::fp8
