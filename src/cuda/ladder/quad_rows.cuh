// Online softmax of the rungs whose rows are held in quads (12 to
// 15): attention/softmax.cuh has the steps and the layout of scores.
#pragma once

#include <cstdint>

#include "cuda/attention/mask.cuh"
#include "cuda/attention/softmax.cuh"

namespace flashcore::cuda::ladder {

// The state of a lane's two rows: the maximum so far in units of log2,
// and this lane's part of the sum of exponentials relative to it.
struct QuadRows {
  float max[2] = {attention::kNoKey, attention::kNoKey};
  float sum[2] = {0, 0};
};

// Masks the columns at or past visible[slot] in each row.
template <int kProducts>
__device__ __forceinline__ void mask_columns(float (&s)[kProducts][4], int lane,
                                             const int (&visible)[2]) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    attention::mask_row<attention::Ends::end>(s, slot, {0, visible[slot] - 2 * (lane % 4)});
  }
}

// One step over a tile of raw scores: s becomes 2^(s * scale_log2 - max + kShift), the sums are updated,
// and rescale[slot] is the factor for all accumulated results. scale_log2 must not be negative.
//
// A row that has seen no key keeps max = -inf, with exponents relative to 0; a NaN
// score makes its row's sum NaN. The factor for a row's first tile is 2^-inf = 0.
template <int kShift = 0, int kProducts>
__device__ __forceinline__ void online_softmax(float (&s)[kProducts][4], QuadRows& rows,
                                               float (&rescale)[2], float scale_log2) {
  float reference[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float old_max = rows.max[slot];
    const float tile_max = attention::quad_max(attention::lane_max(s, slot));
    rows.max[slot] = fmaxf(old_max, tile_max * scale_log2);
    reference[slot] = attention::finite_reference(rows.max[slot]);
    rescale[slot] = ptx::exp2_approx(old_max - reference[slot]);
    rows.sum[slot] *= rescale[slot];
    reference[slot] -= static_cast<float>(kShift);
  }
  attention::exponentiate_at_once(s, reference, scale_log2, rows.sum);
}

// The softmax with a reference that may lag behind the maximum: it is raised, and o and
// the sums are rescaled, only if a score in one of the warp's rows exceeds it by more
// than kSlack (log2). Exponentials are then at most 2^kSlack, well within fp16; neither
// they nor the sums lose precision. After a row's first few tiles this rarely happens,
// and a tile needs neither shuffles nor rescaling. All lanes of the warp call this.
inline constexpr float kSlack = 8;

template <int kProducts, int kOutputs>
__device__ __forceinline__ void lazy_softmax(float (&s)[kProducts][4], float (&o)[kOutputs][4],
                                             QuadRows& rows, float scale_log2) {
  float lane_max[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) lane_max[slot] = attention::lane_max(s, slot) * scale_log2;
  if (__any_sync(0xffffffffU,
                 lane_max[0] > rows.max[0] + kSlack || lane_max[1] > rows.max[1] + kSlack)) {
    float rescale[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float old_max = rows.max[slot];
      rows.max[slot] = fmaxf(old_max, attention::quad_max(lane_max[slot]));
      rescale[slot] = ptx::exp2_approx(old_max - attention::finite_reference(rows.max[slot]));
      rows.sum[slot] *= rescale[slot];
    }
    attention::rescale_rows(o, rescale);
  }
  const float reference[2] = {attention::finite_reference(rows.max[0]),
                              attention::finite_reference(rows.max[1])};
  attention::exponentiate_at_once(s, reference, scale_log2, rows.sum);
}

// Q -> -Q for this thread's share of a shared tile: this makes a negative
// softmax scale positive, as the maximum of raw scores requires.
inline constexpr uint32_t kHalfSigns = 0x80008000U, kE4m3Signs = 0x80808080U;
template <uint32_t kSigns>
__device__ inline void flip_signs(void* tile, int bytes, int thread, int threads) {
  for (int i = thread; i < bytes / 4; i += threads) static_cast<uint32_t*>(tile)[i] ^= kSigns;
}

}  // namespace flashcore::cuda::ladder
