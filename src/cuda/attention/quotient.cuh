// Division by a scale that serves many numbers.
#pragma once

namespace flashcore::cuda::attention {

struct Scale {
  float scale, reciprocal;
};

__device__ __forceinline__ Scale scale_and_reciprocal(float scale) { return {scale, 1.0F / scale}; }

// Between these a quotient that fp8 does not round to 0 has a remainder that fp32 holds exactly.
constexpr float kSmallestScale = 0x1p-80F, kLargestScale = 0x1p80F;

// y / scale, as a division rounds it, for the scales above: a quotient within one place, and a remainder
// that is exact, give the nearest number (Markstein, 1990). NaN where y is infinite or y / scale is too
// large, and a zero may lose its sign.
__device__ __forceinline__ float quotient(float y, const Scale& by) {
  float q = y * by.reciprocal;
  q = fmaf(fmaf(-q, by.scale, y), by.reciprocal, q);
  return fmaf(fmaf(-q, by.scale, y), by.reciprocal, q);
}

}  // namespace flashcore::cuda::attention
