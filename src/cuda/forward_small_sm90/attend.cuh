// One warpgroup's keys: S = Q K^T, P = 2^(S - max), O += P V, for 64 queries and its own tiles.
//
//   K0 | S0 | max, half of 2^S0 | K1 | S1, rest of 2^S0 | max of both | V0 | O = P0 V0, 2^S1 | O +=
//   P1 V1 |
//
// The exponentials of the first tile run before the second tile of K has come; what they are
// relative to is made right when P is packed. Further tiles follow one at a time, online.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
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

// What a lane has of its two rows, l / 4 and l / 4 + 8 of the warp's 16: see quad_softmax.cuh.
template <class S>
struct Partial {
  float o[S::kOutProducts][4];
  float max[2] = {kNoKey, kNoKey};      // of raw scores
  float sums[2][2] = {{0, 0}, {0, 0}};  // [row][even and odd columns], relative to max
};

template <class S>
struct Attention {
  typename S::Shared& smem;
  const Task& task;
  const float scale;
  const int part, group, warp, lane;

  __device__ __forceinline__ int tile_at(int i) const {
    return task.tiles.begin + part + i * kParts;
  }

  // ---- products

  // S = Q K^T, not complete on return.
  __device__ __forceinline__ void start_scores(Scores<S>& s, int slot) {
    using ptx::Accumulate;
    // Steps are added to whole descriptors: a chain of address arithmetic a step would delay them.
    const uint64_t q =
        tile::k_major_descriptor<typename S::QTile>(ptx::shared_address(smem.q), 0, 0);
    const uint64_t k = tile::k_major_descriptor<typename S::KvTile>(
        ptx::shared_address(smem.k[group][slot]), 0, 0);
    ptx::warpgroup_pin(s);
    ptx::warpgroup_fence();
#pragma unroll
    for (int step = 0; step < S::kQkSteps; ++step) {
      const uint64_t a = q + (tile::k_major_step<typename S::QTile>(step) >> 4);
      const uint64_t b = k + (tile::k_major_step<typename S::KvTile>(step) >> 4);
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
  __device__ __forceinline__ void start_output(Partial<S>& w, const Probabilities<S>& p, int slot) {
    const uint64_t v =
        tile::mn_major_descriptor<typename S::KvTile>(ptx::shared_address(smem.v[group][slot]), 0);
    if (kFirst == ptx::Accumulate::overwrite) ptx::warpgroup_pin(w.o);
    ptx::warpgroup_fence();
#pragma unroll
    for (int step = 0; step < S::kKeySteps; ++step) {
      const uint64_t b = v + static_cast<uint32_t>(step * 16 * S::KvTile::kPanelRowBytes / 16);
      if (step == 0) {
        S::Element::template multiply_rs<kFirst>(w.o, p[step], b);
      } else {
        S::Element::template multiply_rs<ptx::Accumulate::add>(w.o, p[step], b);
      }
    }
    ptx::warpgroup_commit();
  }

  __device__ __forceinline__ void wait_k(int slot, uint32_t parity) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.k_full[group][slot]), parity);
  }
  __device__ __forceinline__ void wait_v(int slot, uint32_t parity) {
    ptx::mbarrier_wait(ptx::shared_address(&smem.v_full[group][slot]), parity);
  }
  __device__ __forceinline__ void release(uint64_t& empty) {
    if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&empty));
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

  // s = 2^(s * scale + shift) for products [kBegin, kEnd), added to the sums.
  template <int kBegin, int kEnd>
  __device__ __forceinline__ void exponentials(Scores<S>& s, Partial<S>& w,
                                               const float (&shift)[2]) const {
#pragma unroll
    for (int n = kBegin; n < kEnd; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[n][e] = ptx::exp2_approx(fmaf(s[n][e], scale, shift[e / 2]));
        w.sums[e / 2][e % 2] += s[n][e];
      }
    }
  }

  // Accumulators of two products are the left operand of the next product.
  __device__ __forceinline__ static void pack(Probabilities<S>& p, const Scores<S>& s) {
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        p[n / 2][n % 2 * 2 + row] = S::Element::pack(s[n][2 * row], s[n][2 * row + 1]);
      }
    }
  }
  __device__ __forceinline__ static void pack_scaled(Probabilities<S>& p, const Scores<S>& s,
                                                     const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        p[n / 2][n % 2 * 2 + row] =
            S::Element::pack(s[n][2 * row] * factor[row], s[n][2 * row + 1] * factor[row]);
      }
    }
  }

  // Raises the maxima to those of `largest`; the sums follow, and factor[] is for what is relative
  // to the old ones.
  __device__ __forceinline__ void raise(Partial<S>& w, const float (&largest)[2],
                                        float (&factor)[2], float (&shift)[2]) const {
    float old[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      old[row] = w.max[row];
      w.max[row] = fmaxf(w.max[row], largest[row]);
    }
    shifts_of(w.max, shift);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      factor[row] = ptx::exp2_approx(fmaf(old[row], scale, shift[row]));
      w.sums[row][0] *= factor[row];
      w.sums[row][1] *= factor[row];
    }
  }

  // ---- the three lengths of work; O is not complete on return

  __device__ __forceinline__ void one(Partial<S>& w) {
    Scores<S> s;
    Probabilities<S> p;
    float shift[2];
    wait_k(0, 0);
    start_scores(s, 0);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s);
    mask(s, tile_at(0));
    row_max(s, w.max);
    shifts_of(w.max, shift);
    exponentials<0, S::kKeyProducts>(s, w, shift);
    pack(p, s);
    wait_v(0, 0);
    start_output<ptx::Accumulate::overwrite>(w, p, 0);
  }

  __device__ __forceinline__ void two(Partial<S>& w) {
    Scores<S> s0, s1;
    Probabilities<S> p0, p1;
    float largest[2], factor[2], shift[2];
    wait_k(0, 0);
    start_scores(s0, 0);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s0);
    mask(s0, tile_at(0));
    row_max(s0, w.max);
    shifts_of(w.max, shift);
    exponentials<0, S::kKeyProducts / 2>(s0, w, shift);
    wait_k(1, 0);
    start_scores(s1, 1);
    exponentials<S::kKeyProducts / 2, S::kKeyProducts>(s0, w, shift);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s1);
    mask(s1, tile_at(1));
    row_max(s1, largest);
    raise(w, largest, factor, shift);
    pack_scaled(p0, s0, factor);
    wait_v(0, 0);
    start_output<ptx::Accumulate::overwrite>(w, p0, 0);
    exponentials<0, S::kKeyProducts>(s1, w, shift);
    pack(p1, s1);
    wait_v(1, 0);
    start_output<ptx::Accumulate::add>(w, p1, 1);
  }

  // Tiles from number kDone on.
  template <int kDone>
  __device__ __forceinline__ void rest(Partial<S>& w, int tiles) {
    const bool reused = tiles > S::kSlots;  // slots are given back only where somebody waits
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
    if (reused) {
      for (int slot = 0; slot < kDone; ++slot) {
        release(smem.k_empty[group][slot]);
        release(smem.v_empty[group][slot]);
      }
    }
    RingPosition<S::kSlots> at;
    for (int i = 0; i < kDone; ++i) at.next();
#pragma unroll 1
    for (int i = kDone; i < tiles; ++i) {
      Scores<S> s;
      Probabilities<S> p;
      float largest[2], factor[2], shift[2];
      wait_k(at.slot, at.parity);
      start_scores(s, at.slot);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(s);
      if (reused) release(smem.k_empty[group][at.slot]);
      mask(s, tile_at(i));
      row_max(s, largest);
      raise(w, largest, factor, shift);
      attention::rescale_rows(w.o, factor);
      exponentials<0, S::kKeyProducts>(s, w, shift);
      pack(p, s);
      wait_v(at.slot, at.parity);
      ptx::warpgroup_pin(w.o);
      start_output<ptx::Accumulate::add>(w, p, at.slot);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(w.o);
      if (reused) release(smem.v_empty[group][at.slot]);
      at.next();
    }
  }

  __device__ __forceinline__ void run(Partial<S>& w, int tiles) {
    if (tiles == 0) {
#pragma unroll
      for (int i = 0; i < 4 * S::kOutProducts; ++i) w.o[i / 4][i % 4] = 0;
      return;
    }
    ptx::mbarrier_wait(ptx::shared_address(&smem.q_full), 0);
    if constexpr (S::kPairs) {
      if (tiles == 1) {
        one(w);
      } else {
        two(w);
        if (tiles > 2) [[unlikely]]
          rest<2>(w, tiles);
      }
    } else {
      one(w);
      if (tiles > 1) rest<1>(w, tiles);
    }
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
