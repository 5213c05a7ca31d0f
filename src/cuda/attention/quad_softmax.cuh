// Online softmax on Tensor Core accumulators that never leave their registers.
//
// In m16n8 accumulators (tile/fragment.hpp) a row lies in the four lanes of a quad, and a lane owns
// two rows, slot 0: g = lane / 4 and slot 1: g + 8. Element e of product n belongs to slot e / 2
// and to column 8 * n + 2 * (lane % 4) + e % 2. Maxima cross the quad in two shuffles; sums stay a
// lane's own until the end, since rescaling commutes with adding.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention {

// A lane's two rows: the maximum so far in units of log2 (-inf before the first visible key), and
// this lane's part of the sum of exponentials relative to it.
struct QuadRows {
  float max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {0, 0};
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

// Removes the columns at or past visible[slot] from each row, by selection: what a removed score
// was, NaN included, no longer matters.
template <int kProducts>
__device__ __forceinline__ void mask_columns(float (&s)[kProducts][4], int lane,
                                             const int (&visible)[2]) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 8 * n + 2 * (lane % 4) + (e & 1);
      if (column >= visible[e >> 1]) s[n][e] = -std::numeric_limits<float>::infinity();
    }
  }
}

// What exponents are taken against: 0 while a row has seen no key, as -inf - -inf would be NaN.
__device__ __forceinline__ float finite_reference(float row_max) {
  return row_max == -std::numeric_limits<float>::infinity() ? 0.0F : row_max;
}

// s becomes 2^(s * scale_log2 - reference), and is added to the lane's sums.
template <int kProducts>
__device__ __forceinline__ void exponentials(float (&s)[kProducts][4], QuadRows& rows,
                                             const float (&reference)[2], float scale_log2) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[n][e] = ptx::exp2_approx(fmaf(s[n][e], scale_log2, -reference[e >> 1]));
      rows.sum[e >> 1] += s[n][e];
    }
  }
}

// One step over a tile of raw scores: s becomes 2^(s * scale_log2 - max + kShift), the sums follow,
// and rescale[slot] is the factor for everything accumulated before. scale_log2 is not negative.
//
// A row that has seen no key keeps max = -inf, its exponents being taken against 0; a NaN score
// makes its row's sum NaN. The factor for such a first tile is 2^-inf = 0.
template <int kShift = 0, int kProducts>
__device__ __forceinline__ void online_softmax(float (&s)[kProducts][4], QuadRows& rows,
                                               float (&rescale)[2], float scale_log2) {
  float reference[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    float tile_max = fmaxf(s[0][2 * slot], s[0][2 * slot + 1]);
#pragma unroll
    for (int n = 1; n < kProducts; ++n) {
      tile_max = fmaxf(tile_max, fmaxf(s[n][2 * slot], s[n][2 * slot + 1]));
    }
    const float old_max = rows.max[slot];
    rows.max[slot] = fmaxf(old_max, quad_max(tile_max) * scale_log2);
    reference[slot] = finite_reference(rows.max[slot]);
    rescale[slot] = ptx::exp2_approx(old_max - reference[slot]);
    rows.sum[slot] *= rescale[slot];
    reference[slot] -= static_cast<float>(kShift);
  }
  exponentials(s, rows, reference, scale_log2);
}

// Q -> -Q for this thread's share of a shared tile: a negative softmax scale is so made positive,
// which the maximum of raw scores needs.
inline constexpr uint32_t kHalfSigns = 0x80008000U, kE4m3Signs = 0x80808080U;
template <uint32_t kSigns>
__device__ inline void flip_signs(void* tile, int bytes, int thread, int threads) {
  for (int i = thread; i < bytes / 4; i += threads) static_cast<uint32_t*>(tile)[i] ^= kSigns;
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

// The same with a reference that may lag behind the maximum: it moves, and o and the sums are
// rescaled, only when a score in one of the warp's rows passes it by more than 2^kSlack.
// Exponentials then reach 2^kSlack, well inside fp16; neither they nor the sums lose precision.
// After the first few tiles of a row that hardly ever happens, and a tile costs neither shuffles
// nor the rescaling. All lanes of the warp call this.
inline constexpr float kSlack = 8;

template <int kProducts, int kOutputs>
__device__ __forceinline__ void lazy_softmax(float (&s)[kProducts][4], float (&o)[kOutputs][4],
                                             QuadRows& rows, float scale_log2) {
  float lane_max[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    lane_max[slot] = fmaxf(s[0][2 * slot], s[0][2 * slot + 1]);
#pragma unroll
    for (int n = 1; n < kProducts; ++n) {
      lane_max[slot] = fmaxf(lane_max[slot], fmaxf(s[n][2 * slot], s[n][2 * slot + 1]));
    }
    lane_max[slot] *= scale_log2;
  }
  if (__any_sync(0xffffffffU,
                 lane_max[0] > rows.max[0] + kSlack || lane_max[1] > rows.max[1] + kSlack)) {
    float rescale[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float old_max = rows.max[slot];
      rows.max[slot] = fmaxf(old_max, quad_max(lane_max[slot]));
      rescale[slot] = ptx::exp2_approx(old_max - finite_reference(rows.max[slot]));
      rows.sum[slot] *= rescale[slot];
    }
    rescale_rows(o, rescale);
  }
  const float reference[2] = {finite_reference(rows.max[0]), finite_reference(rows.max[1])};
  exponentials(s, rows, reference, scale_log2);
}

}  // namespace flashcore::cuda::attention
