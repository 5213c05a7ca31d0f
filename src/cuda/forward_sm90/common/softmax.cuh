// A warp's softmax: masks scores, finds row maxima, computes exponentials and their sums.
#pragma once

#include <cstdint>

#include "cuda/attention/mask.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm90/common/task.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::forward_sm90 {

template <class S>
using Scores = float[S::kKeyProducts][4];
template <class S>
using Probabilities = uint32_t[S::kKeySteps][4];

// Sums of a lane's exponentials, [row][even and odd columns].
using Sums = float[2][2];
inline constexpr float kLargestSum = 32768;  // below it, no exponential overflows fp16
inline constexpr float kMostExponent = 14;   // log2 of a probability's bound; fp16 holds twice 2^14

// A lane's share of its two rows, l / 4 and l / 4 + 8 of the warp's 16: see attention/softmax.cuh.
template <class S>
struct Partial {
  float o[S::kOutProducts][4];
  float max[2] = {kNoKey, kNoKey};  // reference of the exponents, in raw scores
  Sums sums = {{0, 0}, {0, 0}};
};

// The softmax of 16 rows of a task, starting at row 16 * warp.
template <class S>
struct Softmax {
  const Task& task;
  const float scale;
  const int warp, lane;

  // Masks the scores of keys that this lane's rows do not see.
  __device__ __forceinline__ void mask(Scores<S>& s, int tile) const {
    if (S::kWhole || !task.tiles.needs_mask(tile)) return;
    constexpr bool kBand = S::kTileBounds == TileBounds::causal_only;
    constexpr attention::Ends kEnds = kBand ? attention::Ends::end : attention::Ends::both;
    const int row = task.first_query + 16 * warp + lane / 4;
    const int first = tile * S::Tile::kRows + 2 * (lane % 4);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const attention::ColumnRange seen =
          attention::visible_columns(task.limits, row + 8 * slot, first);
      attention::mask_row<kEnds>(s, slot, seen);
    }
  }

  __device__ __forceinline__ static void row_max(const Scores<S>& s, float (&largest)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      largest[row] = attention::quad_max(attention::lane_max(s, row));
    }
  }

  // The terms added to scaled scores: 0 for a row without a key, as inf - inf would be NaN. The product
  // is rounded before use, so that a difference of shifts is exactly the difference of the added terms.
  __device__ __forceinline__ void shifts_of(const float (&largest)[2], float (&shift)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      shift[row] = __fmul_rn(-attention::finite_reference(largest[row]), scale);
    }
  }

  // Computes products kBegin to kEnd of P = 2^(S * scale + shift)
  // and their sums, and packs each as soon as it is computed.
  template <int kBegin, int kEnd>
  __device__ __forceinline__ void exponentials(Probabilities<S>& p, Sums& sums, const Scores<S>& s,
                                               const float (&shift)[2]) const {
    const float reference[2] = {-shift[0], -shift[1]};
#pragma unroll
    for (int n = kBegin; n < kEnd; ++n) {
      float product[4];
      attention::exponentiate(product, s[n], reference, scale);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        sums[row][0] += product[2 * row];
        sums[row][1] += product[2 * row + 1];
        p[n / 2][n % 2 * 2 + row] = S::Element::pack(product[2 * row], product[2 * row + 1]);
      }
    }
  }

  // Returns whether another tile's maxima can be the reference for this
  // lane's scores: both rows have one, and no exponential overflows fp16.
  __device__ __forceinline__ bool is_near(const Scores<S>& s, const float (&max)[2],
                                          const float (&shift)[2]) const {
    float largest = kNoKey;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      largest = fmaxf(largest, fmaf(attention::lane_max(s, row), scale, shift[row]));
    }
    return largest < kMostExponent && fminf(max[0], max[1]) > kNoKey;
  }

  // Raises the reference to the scores' maxima. Rescales the sums and O, which
  // is complete, by the difference of the rounded shifts, not of the scores.
  __device__ __forceinline__ void raise(Partial<S>& w, const Scores<S>& s,
                                        float (&shift)[2]) const {
    float largest[2], before[2], factor[2];
    row_max(s, largest);
    shifts_of(w.max, before);
    const bool none[2] = {w.max[0] == kNoKey, w.max[1] == kNoKey};
#pragma unroll
    for (int row = 0; row < 2; ++row) w.max[row] = fmaxf(w.max[row], largest[row]);
    shifts_of(w.max, shift);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      factor[row] = none[row] ? 0.0F : ptx::exp2_approx(shift[row] - before[row]);
      w.sums[row][0] *= factor[row];
      w.sums[row][1] *= factor[row];
    }
    attention::rescale_rows(w.o, factor);
  }
};

}  // namespace flashcore::cuda::forward_sm90
