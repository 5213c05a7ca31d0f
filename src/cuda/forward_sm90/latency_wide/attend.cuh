// One warpgroup's KV tiles: S = Q K^T, P = 2^(S - reference), O += P V, for the block's 64
// queries.
//
//   turn i   | S of i + 1 starts | O += P V of i starts |    the other's turn
//   then     | S of i + 1 is complete: exponentials | O is complete |
//
// Warpgroups take turns at starting products, so that the exponentials of one overlap the products
// of the other. The first tile's maxima are the reference of all others as long as the sums prove
// that no probability overflowed fp16; otherwise the warp does an ordinary online step.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/common/products.cuh"
#include "cuda/forward_sm90/common/softmax.cuh"
#include "cuda/forward_sm90/latency_wide/copies.cuh"
#include "cuda/forward_sm90/latency_wide/split.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_sm90::latency_wide {

template <class S>
struct Attention : Softmax<S> {
  using Base = Softmax<S>;
  using Base::exponentials, Base::lane, Base::mask, Base::raise;
  using Base::shifts_of, Base::row_max, Base::task;
  typename S::Shared& smem;
  const Copies<S>& copies;
  const int group, count;  // count: tiles of the warpgroup's rings
  const OwnTiles own;      // tiles that its queries see

  __device__ __forceinline__ void wait(int tile, int i) const {
    ptx::mbarrier_wait(copies.full(tile), i / kSlots % 2);
  }
  __device__ __forceinline__ int k_tile(int i) const { return S::ring_tile(2 * group, i % kSlots); }
  __device__ __forceinline__ int v_tile(int i) const {
    return S::ring_tile(2 * group + 1, i % kSlots);
  }
  __device__ __forceinline__ void release_k(int i) const {
    copies.release(2 * group, i, count, lane);
  }
  __device__ __forceinline__ void release_v(int i) const {
    copies.release(2 * group + 1, i, count, lane);
  }

  // Skips a tile that this warpgroup does not see. The tile must have
  // arrived before its slot is released and before the block exits.
  __device__ __forceinline__ void skip(int i) const {
    wait(k_tile(i), i);
    release_k(i);
    wait(v_tile(i), i);
    release_v(i);
  }

  __device__ __forceinline__ void scores(Scores<S>& s, int tile) const {
    start_scores<S>(s, copies.address_of(S::kQTile), copies.address_of(tile));
  }

  __device__ __forceinline__ void wait_for_turn() const {
    ptx::named_barrier_sync(kTurn + group, 32 * kWarps);
  }
  __device__ __forceinline__ void give_turn() const {
    ptx::named_barrier_arrive(kTurn + (group ^ 1), 32 * kWarps);
  }
  __device__ __forceinline__ void pass(int count) const {
    for (int i = 0; i < count; ++i) {
      wait_for_turn();
      give_turn();
    }
  }

  __device__ __forceinline__ void first_tile(Partial<S>& w, Scores<S>& s, Probabilities<S>& p,
                                             float (&shift)[2]) const {
    const int first = own.first, tile = k_tile(first);
    wait(S::kQTile, 0);
    wait(tile, first);
    wait_for_turn();
    scores(s, tile);
    give_turn();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s);
    release_k(first);
    mask(s, copies.tile_at(group, first));
    row_max(s, w.max);
    shifts_of(w.max, shift);
    this->template exponentials<0, S::kKeyProducts>(p, w.sums, s, shift);
  }

  // Computes O += P V of tile i, whose probabilities are p, and the scores and probabilities of the next tile.
  template <bool kFirst, bool kMore>
  __device__ __forceinline__ void step(Partial<S>& w, Scores<S>& s, Probabilities<S>& p,
                                       Probabilities<S>& next, float (&shift)[2], int i) const {
    const int k = k_tile(i + 1), v = v_tile(i);
    if (kMore) wait(k, i + 1);
    wait(v, i);
    wait_for_turn();
    ptx::warpgroup_pin(w.o);
    if (kMore) scores(s, k);
    start_output<S, kFirst ? ptx::Accumulate::overwrite : ptx::Accumulate::add>(
        w, p, copies.address_of(v));
    give_turn();
    if (!kMore) return;
    ptx::warpgroup_wait<1>();
    ptx::warpgroup_pin(s);
    release_k(i + 1);
    mask(s, copies.tile_at(group, i + 1));
    Sums sums = {{0, 0}, {0, 0}};
    this->template exponentials<0, S::kKeyProducts>(next, sums, s, shift);
    const float largest = fmaxf(fmaxf(sums[0][0], sums[0][1]), fmaxf(sums[1][0], sums[1][1]));
    const bool near = largest < kLargestSum && fminf(w.max[0], w.max[1]) > kNoKey;
    const bool again = !__all_sync(0xffffffffU, near);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
    release_v(i);
    if (again) [[unlikely]] {
      raise(w, s, shift);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[j / 2][j % 2] = 0;
      this->template exponentials<0, S::kKeyProducts>(next, sums, s, shift);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) w.sums[j / 2][j % 2] += sums[j / 2][j % 2];
  }

  // The last product is not complete on return. turns: tiles of the warpgroup that sees more of them.
  __device__ __forceinline__ void run(Partial<S>& w, int turns) const {
    if (group == 1) give_turn();  // the first turn is the other warpgroup's
    for (int i = 0; i < own.first; ++i) skip(i);
    if (own.size() == 0) {
#pragma unroll
      for (int i = 0; i < 4 * S::kOutProducts; ++i) w.o[i / 4][i % 4] = 0;
    } else {
      Scores<S> s;
      Probabilities<S> p0, p1;
      float shift[2];
      first_tile(w, s, p0, shift);
      if (own.size() == 1) {
        step<true, false>(w, s, p0, p1, shift, own.first);
      } else {
        step<true, true>(w, s, p0, p1, shift, own.first);
        int i = own.first + 1;
#pragma unroll 1
        for (; i + 2 < own.last; i += 2) {
          step<false, true>(w, s, p1, p0, shift, i);
          step<false, true>(w, s, p0, p1, shift, i + 1);
        }
        if (i + 1 == own.last) {
          step<false, false>(w, s, p1, p0, shift, i);
        } else {
          step<false, true>(w, s, p1, p0, shift, i);
          step<false, false>(w, s, p0, p1, shift, i + 1);
        }
      }
    }
    pass(own.size() == 0 ? turns + 1 : turns - own.size());
  }

  // Skips the tiles after the last one that it sees, whose V may still be read.
  __device__ __forceinline__ void skip_rest(Partial<S>& w) const {
    if (own.last == count) return;
    finish(w);
    if (own.size() > 0) release_v(own.last - 1);
    for (int i = own.last; i < count; ++i) skip(i);
  }
  // Waits for the last product.
  __device__ __forceinline__ void finish(Partial<S>& w) const {
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(w.o);
  }
};

}  // namespace flashcore::cuda::forward_sm90::latency_wide
