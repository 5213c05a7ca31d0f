// Softmax on fp32 scores in the registers of Tensor Core accumulators: the steps common to
// all kernels. Each kernel decides which reference exponents have, and when to raise it.
//
// In m16n8 accumulators (tile/fragment.hpp) a row lies in the four lanes of a quad, and a lane owns
// two rows, slot 0: g = lane / 4 and slot 1: g + 8. Element e of product n belongs to slot e / 2
// and to column 8 * n + 2 * (lane % 4) + e % 2. Maxima cross the quad in two shuffles; sums stay a
// lane's own until the end, since rescaling commutes with adding.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/units.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention {

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, d));
  return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffU, x, d);
  return x;
}

// Returns a lane's largest score of a row, over the first kUsed products; 0: over all.
template <int kUsed = 0, int kProducts>
__device__ __forceinline__ float lane_max(const float (&s)[kProducts][4], int slot) {
  float largest = s[0][2 * slot];
#pragma unroll
  for (int n = 0; n < (kUsed == 0 ? kProducts : kUsed); ++n) {
    largest = fmaxf(largest, fmaxf(s[n][2 * slot], s[n][2 * slot + 1]));
  }
  return largest;
}

// Returns a row's largest score in units of log2, plus `headroom`. For a finite score, the result
// is never -inf, which would mean no key, but at least fp32's lowest number, a large reference.
__device__ __forceinline__ float scaled_max(float most, float scale_log2, float headroom = 0) {
  const float scaled = fmaf(most, scale_log2, headroom);
  return scaled == kNoKey && most > kNoKey ? std::numeric_limits<float>::lowest() : scaled;
}

// The reference of exponents: 0 while a row has seen no key, as -inf - -inf would be NaN.
__device__ __forceinline__ float finite_reference(float row_max) {
  return row_max == kNoKey ? 0.0F : row_max;
}

// to = 2^(s * scale - reference), for one product.
__device__ __forceinline__ void exponentiate(float (&to)[4], const float (&s)[4],
                                             const float (&reference)[2], float scale) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    to[e] = ptx::exp2_approx(fmaf(s[e], scale, -reference[e / 2]));
  }
}

// s = 2^(s * scale - reference) for products kBegin to kEnd, in place; total: this lane's sums
// per slot. Sums trail the exponentials by two products, the latency of the special functions.
template <int kBegin, int kEnd, int kProducts>
__device__ __forceinline__ void exponentiate(float (&s)[kProducts][4], const float (&reference)[2],
                                             float scale, float (&total)[2]) {
  float even[2] = {0, 0}, odd[2] = {0, 0};
#pragma unroll
  for (int n = kBegin; n < kEnd + 2; n += 2) {
    if (n < kEnd) {
      exponentiate(s[n], s[n], reference, scale);
      exponentiate(s[n + 1], s[n + 1], reference, scale);
    }
    if (n == kBegin) continue;
#pragma unroll
    for (int i = n - 2; i < n; ++i) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        even[slot] += s[i][2 * slot];
        odd[slot] += s[i][2 * slot + 1];
      }
    }
  }
  total[0] = even[0] + odd[0];
  total[1] = even[1] + odd[1];
}

// Exponentiates all products in fewer registers: each is added to the sums at once.
template <int kProducts>
__device__ __forceinline__ void exponentiate_at_once(float (&s)[kProducts][4],
                                                     const float (&reference)[2], float scale,
                                                     float (&sum)[2]) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
    exponentiate(s[n], s[n], reference, scale);
    sum[0] += s[n][0] + s[n][1];
    sum[1] += s[n][2] + s[n][3];
  }
}

// Packs registers kBegin to kEnd of P, counted over all steps of 16 keys:
// accumulators of two products are the left operand of a step of the next product.
template <class Element, int kBegin, int kEnd, int kSteps>
__device__ __forceinline__ void pack(uint32_t (&p)[kSteps][4], const float (&s)[2 * kSteps][4]) {
#pragma unroll
  for (int i = kBegin; i < kEnd; ++i) {
    p[i / 4][i % 4] = Element::pack(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
  }
}
template <class Element, int kSteps>
__device__ __forceinline__ void pack(uint32_t (&p)[kSteps][4], const float (&s)[2 * kSteps][4]) {
  pack<Element, 0, 4 * kSteps>(p, s);
}

// o *= rescale, row by row.
template <int kProducts>
__device__ __forceinline__ void rescale_rows(float (&o)[kProducts][4], const float (&rescale)[2]) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) o[n][e] *= rescale[e >> 1];
  }
}

}  // namespace flashcore::cuda::attention
