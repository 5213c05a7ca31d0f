// What a warp does with scores: masks, maxima, exponentials, and their sums.
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
inline constexpr float kLargestSum = 32768;  // then no exponential passes what fp16 holds
inline constexpr float kMostExponent = 14;   // of 2, of a probability: fp16 holds twice that much

// What a lane has of its two rows, l / 4 and l / 4 + 8 of the warp's 16: see attention/softmax.cuh.
template <class S>
struct Partial {
  float o[S::kOutProducts][4];
  float max[2] = {kNoKey, kNoKey};  // what exponents are relative to, of raw scores
  Sums sums = {{0, 0}, {0, 0}};
};

// Of 16 rows of a task, from 16 * warp on.
template <class S>
struct Softmax {
  const Task& task;
  const float scale;
  const int warp, lane;

  // Removes what the rows of this lane do not see of a tile.
  __device__ __forceinline__ void mask(Scores<S>& s, int tile) const {
    if (S::kWhole || !task.tiles.needs_mask(tile)) return;
    constexpr bool kBand = S::kCover == Cover::band;
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

  // What is added to scaled scores: 0 for a row without a key, as inf - inf would be NaN. Rounded
  // by itself, so that differences of shifts are those of what was added.
  __device__ __forceinline__ void shifts_of(const float (&largest)[2], float (&shift)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      shift[row] = __fmul_rn(-attention::finite_reference(largest[row]), scale);
    }
  }

  // Products kBegin to kEnd of P = 2^(S * scale + shift), packed as soon as they are there, and
  // their sums.
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

  // Whether the maxima of another tile will do for this lane's scores: for both rows there is one,
  // and no exponential passes what fp16 holds.
  __device__ __forceinline__ bool is_near(const Scores<S>& s, const float (&max)[2],
                                          const float (&shift)[2]) const {
    float largest = kNoKey;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      largest = fmaxf(largest, fmaf(attention::lane_max(s, row), scale, shift[row]));
    }
    return largest < kMostExponent && fminf(max[0], max[1]) > kNoKey;
  }

  // Raises the reference to the maxima of scores; sums and O, which is complete, follow by the
  // difference of what was added: rounded shifts, not scores.
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
