// Stands for src/cuda/ptx/exp2.cuh.
#pragma once

#include <cmath>
#include <limits>

namespace flashcore::cuda::ptx {

// The host's 2^x, with the hardware's treatment of denormals. The hardware errs by about 2 ulp.
inline float exp2_approx(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0F : y;
}

}  // namespace flashcore::cuda::ptx
