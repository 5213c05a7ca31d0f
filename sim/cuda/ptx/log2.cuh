// Stands for src/cuda/ptx/log2.cuh. Denormal arguments count as zero.
#pragma once

#include <cmath>
#include <limits>

namespace flashcore::cuda::ptx {

inline float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}
inline float log2_approx(float x) { return std::log2(flushed(x)); }
inline float reciprocal_approx(float x) { return flushed(1 / flushed(x)); }

}  // namespace flashcore::cuda::ptx
