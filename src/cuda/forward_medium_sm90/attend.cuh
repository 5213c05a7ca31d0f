// One warpgroup's 64 queries against all tiles of keys of its block, which it shares with the
// other warpgroup.
//
//   step i   | S of i + 1 starts | P of i: exponentials | O += P V of i starts |
//
// The maxima of the first tile are the reference of all others as long as their sums show that no
// probability passed what fp16 holds; otherwise a warp does an ordinary online step.
#pragma once

#include <cstdint>

#include "cuda/forward_medium_sm90/copies.cuh"
#include "cuda/forward_small_sm90/products.cuh"
#include "cuda/forward_small_sm90/softmax.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::Partial, forward_small_sm90::Probabilities, forward_small_sm90::Scores;
using forward_small_sm90::Sums, forward_small_sm90::kLargestSum, forward_small_sm90::kNoKey;

template <class S>
struct Attention : forward_small_sm90::Softmax<S> {
  using Base = forward_small_sm90::Softmax<S>;
  using Base::exponentials, Base::lane, Base::mask, Base::raise, Base::row_max;
  using Base::shifts_of, Base::task;
  typename S::Shared& smem;
  const Copies<S>& copies;
  const int group, first, last;  // the block's tiles [first, last) are this warpgroup's

  __device__ __forceinline__ uint32_t address_of(int tile) const {
    return ptx::shared_address(&smem.tiles[0][0]) + tile * S::Tile::kBytes;
  }
  __device__ __forceinline__ void wait(int tile, int i) const {
    ptx::mbarrier_wait(ptx::shared_address(&smem.full[0]) + 8 * tile, i / kSlots % 2);
  }

  // A tile that this warpgroup does not see. It must have come before its slot counts as read:
  // otherwise the slot's next tile would count twice.
  __device__ __forceinline__ void skip(int i) const {
    if (i + kSlots < copies.count) wait(S::k_tile(i % kSlots), i);
    copies.release(i, lane);
  }

  __device__ __forceinline__ void scores(Scores<S>& s, int i) const {
    const int tile = S::k_tile(i % kSlots);
    wait(tile, i);
    forward_small_sm90::start_scores<S>(s, address_of(S::q_tile(group)), address_of(tile));
  }

  // Scores of tile i are on their way, of i - 1 in the output.
  template <bool kFirst, bool kMore>
  __device__ __forceinline__ void step(Partial<S>& w, Scores<S>& s, Scores<S>& next,
                                       Probabilities<S>& p, float (&shift)[2], int i) const {
    if (kMore) scores(next, i + 1);
    ptx::warpgroup_wait<(kFirst ? 0 : 1) + (kMore ? 1 : 0)>();
    ptx::warpgroup_pin(s);
    if (!kFirst && i - 2 >= first) copies.release(i - 2, lane);
    mask(s, copies.tile_at(i));
    Sums sums = {{0, 0}, {0, 0}};
    if (kFirst) {
      row_max(s, w.max);
      shifts_of(w.max, shift);
      exponentials<0, S::kKeyProducts>(p, sums, s, shift);
    } else {
      exponentials<0, S::kKeyProducts>(p, sums, s, shift);
      const float largest = fmaxf(fmaxf(sums[0][0], sums[0][1]), fmaxf(sums[1][0], sums[1][1]));
      const bool near = largest < kLargestSum && fminf(w.max[0], w.max[1]) > kNoKey;
      if (!__all_sync(0xffffffffU, near)) [[unlikely]] {
        ptx::warpgroup_wait<0>();
        ptx::warpgroup_pin(w.o);
        raise(w, s, shift);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[j / 2][j % 2] = 0;
        exponentials<0, S::kKeyProducts>(p, sums, s, shift);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) w.sums[j / 2][j % 2] += sums[j / 2][j % 2];
    const int tile = S::v_tile(i % kSlots);
    wait(tile, i);
    forward_small_sm90::start_output<S, kFirst ? ptx::Accumulate::overwrite : ptx::Accumulate::add>(
        w, p, address_of(tile));
  }

  // The last product is not complete on return.
  __device__ __forceinline__ void run(Partial<S>& w) const {
    for (int i = 0; i < first; ++i) skip(i);
    if (first == last) {
#pragma unroll
      for (int i = 0; i < 4 * S::kOutProducts; ++i) w.o[i / 4][i % 4] = 0;
    } else {
      Scores<S> s0, s1;
      Probabilities<S> p0, p1;
      float shift[2];
      wait(S::q_tile(group), 0);
      scores(s0, first);
      if (first + 1 == last) {
        step<true, false>(w, s0, s1, p0, shift, first);
      } else {
        step<true, true>(w, s0, s1, p0, shift, first);
        int i = first + 1;
#pragma unroll 1
        for (; i + 2 < last; i += 2) {
          step<false, true>(w, s1, s0, p1, shift, i);
          step<false, true>(w, s0, s1, p0, shift, i + 1);
        }
        if (i + 1 == last) {
          step<false, false>(w, s1, s0, p1, shift, i);
        } else {
          step<false, true>(w, s1, s0, p1, shift, i);
          step<false, false>(w, s0, s1, p0, shift, i + 1);
        }
      }
    }
  }

  // Waits for the last product; every tile of the block is released.
  __device__ __forceinline__ void finish(Partial<S>& w) const {
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
    for (int i = max(first, last - 2); i < copies.count; ++i) skip(i);
  }
};

}  // namespace flashcore::cuda::forward_medium_sm90
