// What a warp does with scores: masks, maxima, exponentials, and their sums.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/quad_softmax.cuh"
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

// What a lane has of its two rows, l / 4 and l / 4 + 8 of the warp's 16: see quad_softmax.cuh.
template <class S>
struct Partial {
  float o[S::kOutProducts][4];
  float max[2] = {kNoKey, kNoKey};  // what exponents are relative to, of raw scores
  Sums sums = {{0, 0}, {0, 0}};
};

// A row's maximum as exponents are relative to it: rounded by itself. Not below the lowest number:
// that would be a row without a key.
__device__ __forceinline__ float scaled_max(float max, float scale) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  return max > kNoKey ? fmaxf(__fmul_rn(max, scale), kLowest) : kNoKey;
}

// Of 16 rows of a task, from 16 * warp on.
template <class S>
struct Softmax {
  const Task& task;
  const float scale;
  const int warp, lane;

  // Removes what the rows of this lane do not see of a tile, by selection.
  __device__ __forceinline__ void mask(Scores<S>& s, int tile) const {
    if (S::kWhole || !task.tiles.needs_mask(tile)) return;
    const int row = task.first_query + 16 * warp + lane / 4;
    const int first = tile * S::Tile::kRows + 2 * (lane % 4);
    const Columns columns[2] = {columns_of(task.limits, row, first),
                                columns_of(task.limits, row + 8, first)};
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Columns& row_columns = columns[e / 2];
        const int column = 8 * n + e % 2;
        if (column < row_columns.begin || column >= row_columns.end) s[n][e] = kNoKey;
      }
    }
  }

  __device__ __forceinline__ static void row_max(const Scores<S>& s, float (&largest)[2]) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float even = s[0][2 * row], odd = s[0][2 * row + 1];
#pragma unroll
      for (int n = 1; n < S::kKeyProducts; ++n) {
        even = fmaxf(even, s[n][2 * row]);
        odd = fmaxf(odd, s[n][2 * row + 1]);
      }
      largest[row] = attention::quad_max(fmaxf(even, odd));
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

  // Products kBegin to kEnd of P = 2^(S * scale + shift), packed, and their sums. Accumulators of
  // two products are the left operand of a step of the next product.
  template <int kBegin, int kEnd>
  __device__ __forceinline__ void exponentials(Probabilities<S>& p, Sums& sums, const Scores<S>& s,
                                               const float (&shift)[2]) const {
#pragma unroll
    for (int n = kBegin; n < kEnd; ++n) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float even = ptx::exp2_approx(fmaf(s[n][2 * row], scale, shift[row]));
        const float odd = ptx::exp2_approx(fmaf(s[n][2 * row + 1], scale, shift[row]));
        sums[row][0] += even;
        sums[row][1] += odd;
        p[n / 2][n % 2 * 2 + row] = S::Element::pack(even, odd);
      }
    }
  }

  // Whether the maxima of another tile will do for these scores: for every row of the warp there is
  // one, and no exponential passes what fp16 holds. A lane looks at its own scores only, which
  // costs no exchange; all lanes agree.
  __device__ __forceinline__ bool is_near(const Scores<S>& s, const float (&reference)[2],
                                          const float (&shift)[2]) const {
    float largest = kNoKey;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float even = s[0][2 * row], odd = s[0][2 * row + 1];
#pragma unroll
      for (int n = 1; n < S::kKeyProducts; ++n) {
        even = fmaxf(even, s[n][2 * row]);
        odd = fmaxf(odd, s[n][2 * row + 1]);
      }
      largest = fmaxf(largest, fmaf(fmaxf(even, odd), scale, shift[row]));
    }
    const bool near = largest < kMostExponent && fminf(reference[0], reference[1]) > kNoKey;
    return __all_sync(0xffffffffU, near) != 0;
  }

  // Raises the reference to the maxima of scores; sums and O, which is complete, follow by the
  // difference of what was subtracted: rounded shifts, not scores.
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
