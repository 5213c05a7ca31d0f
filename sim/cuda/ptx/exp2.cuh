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

inline float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}
inline float log2_approx(float x) { return std::log2(flushed(x)); }
inline float reciprocal_approx(float x) { return flushed(1 / flushed(x)); }

}  // namespace flashcore::cuda::ptx
