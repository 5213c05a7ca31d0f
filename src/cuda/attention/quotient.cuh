// Division of many numbers by the same scale.
#pragma once

namespace flashcore::cuda::attention {

struct Scale {
  float scale, reciprocal;
};

__device__ __forceinline__ Scale scale_and_reciprocal(float scale) { return {scale, 1.0F / scale}; }

// For scales in this range, a quotient that does not round to 0 in fp8 has a remainder exact in fp32.
constexpr float kSmallestScale = 0x1p-80F, kLargestScale = 0x1p80F;

// Returns y / scale, correctly rounded for the scales above: a quotient accurate to one
// unit in the last place and an exact remainder give the nearest number (Markstein,
// 1990). NaN if y is infinite or y / scale is too large; a zero may lose its sign.
__device__ __forceinline__ float quotient(float y, const Scale& by) {
  float q = y * by.reciprocal;
  q = fmaf(fmaf(-q, by.scale, y), by.reciprocal, q);
  return fmaf(fmaf(-q, by.scale, y), by.reciprocal, q);
}

}  // namespace flashcore::cuda::attention
