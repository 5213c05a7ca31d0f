// One warpgroup's keys: S = Q K^T, P = 2^(S - reference), O += P V, for 64 queries and its own
// tiles.
//
//   K0 | S0, V is asked for | max, half of P0 | K1 | S1, rest of P0 | V0 | O = P0 V0, P1 | V1 |
//   O += P1 V1 |
//
// The maximum of the first tile is the reference of the second as well, where that is near enough:
// no exchange between lanes, no rescaling, and P0 is packed before S1 is there. Otherwise a warp
// does an ordinary online step. Further tiles follow one at a time, online.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/forward_small_sm90/copies.cuh"
#include "cuda/forward_small_sm90/shape.cuh"
#include "cuda/forward_small_sm90/task.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::forward_small_sm90 {

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

template <class S>
struct Attention {
  typename S::Shared& smem;
  const Copies<S>& copies;
  const Task& task;
  const float scale;
  const int part, group, warp, lane;

  __device__ __forceinline__ int tile_at(int i) const {
    return task.tiles.begin + part + i * kParts;
  }
  __device__ __forceinline__ uint32_t address_of(int tile) const {
    return ptx::shared_address(&smem.tiles[0][0]) + tile * S::Tile::kBytes;
  }
  __device__ __forceinline__ void wait(int tile, uint32_t parity) const {
    ptx::mbarrier_wait(ptx::shared_address(&smem.full[0]) + 8 * tile, parity);
  }

  // ---- products

  // S = Q K^T, not complete on return.
  __device__ __forceinline__ void start_scores(Scores<S>& s, int slot) const {
    using ptx::Accumulate;
    // Steps are added to whole descriptors: a chain of address arithmetic a step would delay them.
    const uint64_t q = tile::k_major_descriptor<typename S::Tile>(address_of(kQTile), 0, 0);
    const uint64_t k =
        tile::k_major_descriptor<typename S::Tile>(address_of(k_tile(group, slot)), 0, 0);
    ptx::warpgroup_pin(s);
    ptx::warpgroup_fence();
#pragma unroll
    for (int step = 0; step < S::kQkSteps; ++step) {
      const uint64_t a = q + (tile::k_major_step<typename S::Tile>(step) >> 4);
      const uint64_t b = k + (tile::k_major_step<typename S::Tile>(step) >> 4);
      if (step == 0) {
        S::Element::template multiply_ss<Accumulate::overwrite>(s, a, b);
      } else {
        S::Element::template multiply_ss<Accumulate::add>(s, a, b);
      }
    }
    ptx::warpgroup_commit();
  }

  // O = P V or O += P V, not complete on return.
  template <ptx::Accumulate kFirst>
  __device__ __forceinline__ void start_output(Partial<S>& w, const Probabilities<S>& p,
                                               int slot) const {
    const uint64_t v =
        tile::mn_major_descriptor<typename S::Tile>(address_of(v_tile(group, slot)), 0);
    if (kFirst == ptx::Accumulate::overwrite) ptx::warpgroup_pin(w.o);
    ptx::warpgroup_fence();
#pragma unroll
    for (int step = 0; step < S::kKeySteps; ++step) {
      const uint64_t b = v + static_cast<uint32_t>(step * 16 * S::Tile::kPanelRowBytes / 16);
      if (step == 0) {
        S::Element::template multiply_rs<kFirst>(w.o, p[step], b);
      } else {
        S::Element::template multiply_rs<ptx::Accumulate::add>(w.o, p[step], b);
      }
    }
    ptx::warpgroup_commit();
  }

  // ---- softmax

  // Removes what the rows of this lane do not see of a tile, by selection.
  __device__ __forceinline__ void mask(Scores<S>& s, int tile) const {
    if (S::kWhole || !task.tiles.needs_mask(tile)) return;
    const int row = task.first_query + 16 * warp + lane / 4;
    const int first = tile * kBlockKv + 2 * (lane % 4);
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

  // What is added to scaled scores: 0 for a row without a key, as inf - inf would be NaN.
  __device__ __forceinline__ void shifts_of(const float (&largest)[2], float (&shift)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      shift[row] = -attention::finite_reference(largest[row]) * scale;
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

  // Raises the reference to the maxima of scores; sums and O, which is complete, follow.
  __device__ __forceinline__ void raise(Partial<S>& w, const Scores<S>& s,
                                        float (&shift)[2]) const {
    float largest[2], old[2], factor[2];
    row_max(s, largest);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      old[row] = w.max[row];
      w.max[row] = fmaxf(old[row], largest[row]);
    }
    shifts_of(w.max, shift);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      factor[row] = ptx::exp2_approx(fmaf(old[row], scale, shift[row]));
      w.sums[row][0] *= factor[row];
      w.sums[row][1] *= factor[row];
    }
    attention::rescale_rows(w.o, factor);
  }

  // While the first scores are computed: before that, every warp of the group is waited for.
  __device__ __forceinline__ void start_values() const {
    if (lane == 0) copies.start_values(group);
    __syncwarp();
  }

  // ---- the three lengths of work; O is not complete on return

  __device__ __forceinline__ void one(Partial<S>& w) const {
    Scores<S> s;
    Probabilities<S> p;
    float shift[2];
    wait(k_tile(group, 0), 0);
    start_scores(s, 0);
    start_values();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s);
    mask(s, tile_at(0));
    row_max(s, w.max);
    shifts_of(w.max, shift);
    exponentials<0, S::kKeyProducts>(p, w.sums, s, shift);
    wait(v_tile(group, 0), 0);
    start_output<ptx::Accumulate::overwrite>(w, p, 0);
  }

  // O = P0 V0 and P1. With registers to keep the scores, whether the reference was near enough is
  // seen in the sums, afterwards.
  __device__ __forceinline__ void second_kept(Partial<S>& w, const Probabilities<S>& p0,
                                              Probabilities<S>& p1, const Scores<S>& s1,
                                              float (&shift)[2]) const {
    constexpr int kHalf = S::kKeyProducts / 2;
    Sums sums = {{0, 0}, {0, 0}};
    exponentials<0, kHalf>(p1, sums, s1, shift);
    wait(v_tile(group, 0), 0);
    start_output<ptx::Accumulate::overwrite>(w, p0, 0);
    exponentials<kHalf, S::kKeyProducts>(p1, sums, s1, shift);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
    const float largest = fmaxf(fmaxf(sums[0][0], sums[0][1]), fmaxf(sums[1][0], sums[1][1]));
    const bool near = largest < kLargestSum && fminf(w.max[0], w.max[1]) > kNoKey;
    if (!__all_sync(0xffffffffU, near)) [[unlikely]] {
      raise(w, s1, shift);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = 0;
      exponentials<0, S::kKeyProducts>(p1, sums, s1, shift);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) w.sums[i / 2][i % 2] += sums[i / 2][i % 2];
  }
  // Otherwise it is seen before.
  __device__ __forceinline__ void second(Partial<S>& w, const Probabilities<S>& p0,
                                         Probabilities<S>& p1, const Scores<S>& s1,
                                         float (&shift)[2]) const {
    const bool near = is_near(s1, w.max, shift);
    wait(v_tile(group, 0), 0);
    start_output<ptx::Accumulate::overwrite>(w, p0, 0);
    if (!near) [[unlikely]] {
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(w.o);
      raise(w, s1, shift);
    }
    exponentials<0, S::kKeyProducts>(p1, w.sums, s1, shift);
    if constexpr (!S::kWhole) {  // with masks there are no registers for both probabilities
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(w.o);
    }
  }

  __device__ __forceinline__ void two(Partial<S>& w) const {
    constexpr int kHalf = S::kKeyProducts / 2;
    Scores<S> s0, s1;
    Probabilities<S> p0, p1;
    float shift[2];
    wait(k_tile(group, 0), 0);
    start_scores(s0, 0);
    start_values();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s0);
    mask(s0, tile_at(0));
    row_max(s0, w.max);
    shifts_of(w.max, shift);
    exponentials<0, kHalf>(p0, w.sums, s0, shift);
    wait(k_tile(group, 1), 0);
    start_scores(s1, 1);
    exponentials<kHalf, S::kKeyProducts>(p0, w.sums, s0, shift);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s1);
    mask(s1, tile_at(1));
    if constexpr (S::kConfig.blocks == 1) {
      second_kept(w, p0, p1, s1, shift);
    } else {
      second(w, p0, p1, s1, shift);
    }
    wait(v_tile(group, 1), 0);
    start_output<ptx::Accumulate::add>(w, p1, 1);
  }

  // The warpgroup has read slot `slot`, where tile `i` was: if there is a tile for it, it comes.
  __device__ __forceinline__ void refill(int i, int tiles) const {
    if (i + kSlots >= tiles) return;
    ptx::named_barrier_sync(kGroupIsDone + group, kGroupThreads);
    if (warp == 0 && lane == 0) copies.start_next(group, i + kSlots);
    __syncwarp();
  }

  // Tiles after the first two.
  __device__ __forceinline__ void rest(Partial<S>& w, int tiles) const {
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
    for (int i = 0; i < kSlots; ++i) refill(i, tiles);
#pragma unroll 1
    for (int i = kSlots; i < tiles; ++i) {
      const int slot = i % kSlots;
      const uint32_t parity = i / kSlots % 2;
      Scores<S> s;
      Probabilities<S> p;
      float shift[2];
      wait(k_tile(group, slot), parity);
      start_scores(s, slot);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(s);
      mask(s, tile_at(i));
      raise(w, s, shift);
      exponentials<0, S::kKeyProducts>(p, w.sums, s, shift);
      wait(v_tile(group, slot), parity);
      start_output<ptx::Accumulate::add>(w, p, slot);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(w.o);
      refill(i, tiles);
    }
  }

  __device__ __forceinline__ void run(Partial<S>& w, int tiles) const {
    if (tiles == 0) {
#pragma unroll
      for (int i = 0; i < 4 * S::kOutProducts; ++i) w.o[i / 4][i % 4] = 0;
      return;
    }
    wait(kQTile, 0);
    if (tiles == 1) {
      one(w);
    } else {
      two(w);
      if (tiles > 2) [[unlikely]]
        rest(w, tiles);
    }
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
