// One warpgroup's keys: S = Q K^T, P = 2^(S - reference), O += P V, for 64 queries and its own
// tiles.
//
//   wait    | K0            |                 | K1             | V0            | V1         |
//   compute | S0, request V | max, half of P0 | S1, rest of P0 | O = P0 V0, P1 | O += P1 V1 |
//
// The first tile's maximum is also the reference of the second tile if it is close enough:
// then lanes exchange nothing, O is not rescaled, and P0 is packed before S1 is complete.
// Otherwise the warp does an ordinary online step. Further tiles follow one at a time, online.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/common/products.cuh"
#include "cuda/forward_sm90/common/softmax.cuh"
#include "cuda/forward_sm90/latency/copies.cuh"
#include "cuda/forward_sm90/latency/shape.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::forward_sm90::latency {

template <class S>
struct Attention : Softmax<S> {
  using Base = Softmax<S>;
  using Base::exponentials, Base::is_near, Base::lane, Base::mask, Base::raise;
  using Base::shifts_of, Base::row_max, Base::task, Base::warp;
  typename S::Shared& smem;
  const Copies<S>& copies;
  const int part, group;

  __device__ __forceinline__ int tile_at(int i) const {
    return task.tiles.begin + part + (i ^ copies.flip(group)) * S::kParts;
  }
  __device__ __forceinline__ uint32_t address_of(int tile) const {
    return ptx::shared_address(&smem.tiles[0][0]) + tile * S::Tile::kBytes;
  }
  __device__ __forceinline__ void wait(int tile, uint32_t parity) const {
    ptx::mbarrier_wait(ptx::shared_address(&smem.full[0]) + 8 * tile, parity);
  }

  // ---- products

  __device__ __forceinline__ void start_scores(Scores<S>& s, int slot) const {
    forward_sm90::start_scores<S>(s, address_of(kQTile), address_of(k_tile(group, slot)));
  }
  template <ptx::Accumulate kFirst>
  __device__ __forceinline__ void start_output(Partial<S>& w, const Probabilities<S>& p,
                                               int slot) const {
    forward_sm90::start_output<S, kFirst>(w, p, address_of(v_tile(group, slot)));
  }

  // Runs while the first scores are computed: earlier, it would wait for every warp of the group.
  __device__ __forceinline__ void start_values() const {
    if (lane == 0) copies.start_values(group);
    __syncwarp();
  }

  // ---- one tile, two tiles, or more; O is not complete on return

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
    this->template exponentials<0, S::kKeyProducts>(p, w.sums, s, shift);
    wait(v_tile(group, 0), 0);
    start_output<ptx::Accumulate::overwrite>(w, p, 0);
  }

  // O = P0 V0 + P1 V1. If registers suffice to keep the scores, the sums tell afterwards
  // whether the reference was close enough. At head dimension 64 this check runs during
  // the last product, and the warpgroup then repeats that product from the start.
  __device__ __forceinline__ void second_kept(Partial<S>& w, const Probabilities<S>& p0,
                                              Probabilities<S>& p1, const Scores<S>& s1,
                                              float (&shift)[2]) const {
    constexpr int kHalf = S::kKeyProducts / 2;
    constexpr bool kRepeats = S::kHeadDim == 64;
    Sums sums = {{0, 0}, {0, 0}};
    this->template exponentials<0, kHalf>(p1, sums, s1, shift);
    wait(v_tile(group, 0), 0);
    start_output<ptx::Accumulate::overwrite>(w, p0, 0);
    this->template exponentials<kHalf, S::kKeyProducts>(p1, sums, s1, shift);
    if constexpr (kRepeats) {
      wait(v_tile(group, 1), 0);
      start_output<ptx::Accumulate::add>(w, p1, 1);
    } else {
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(w.o);
    }
    const float largest = fmaxf(fmaxf(sums[0][0], sums[0][1]), fmaxf(sums[1][0], sums[1][1]));
    const bool near = largest < kLargestSum && fminf(w.max[0], w.max[1]) > kNoKey;
    if constexpr (kRepeats) __syncwarp();
    const bool far = kRepeats ? ptx::named_barrier_or(kGroupIsDone + group, kGroupThreads, !near)
                              : __any_sync(0xffffffffU, !near) != 0;
    if (far) [[unlikely]] {
      if constexpr (kRepeats) {
        ptx::warpgroup_wait<0>();
        ptx::warpgroup_pin(w.o);
        start_output<ptx::Accumulate::overwrite>(w, p0, 0);
        ptx::warpgroup_wait<0>();
        ptx::warpgroup_pin(w.o);
      }
      raise(w, s1, shift);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i / 2][i % 2] = 0;
      this->template exponentials<0, S::kKeyProducts>(p1, sums, s1, shift);
      if constexpr (kRepeats) start_output<ptx::Accumulate::add>(w, p1, 1);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) w.sums[i / 2][i % 2] += sums[i / 2][i % 2];
    if constexpr (!kRepeats) {
      wait(v_tile(group, 1), 0);
      start_output<ptx::Accumulate::add>(w, p1, 1);
    }
  }
  // Checks the reference before the exponentials. The whole warpgroup
  // decides together: either all its warps wait for products, or none does.
  __device__ __forceinline__ void second(Partial<S>& w, const Probabilities<S>& p0,
                                         Probabilities<S>& p1, const Scores<S>& s1,
                                         float (&shift)[2]) const {
    const bool near = is_near(s1, w.max, shift);
    wait(v_tile(group, 0), 0);
    start_output<ptx::Accumulate::overwrite>(w, p0, 0);
    __syncwarp();
    if (ptx::named_barrier_or(kGroupIsDone + group, kGroupThreads, !near)) [[unlikely]] {
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(w.o);
      raise(w, s1, shift);
    }
    this->template exponentials<0, S::kKeyProducts>(p1, w.sums, s1, shift);
    if constexpr (!S::kWhole) {  // masked: too few registers for both probabilities
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
    this->template exponentials<0, kHalf>(p0, w.sums, s0, shift);
    wait(k_tile(group, 1), 0);
    start_scores(s1, 1);
    this->template exponentials<kHalf, S::kKeyProducts>(p0, w.sums, s0, shift);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s1);
    mask(s1, tile_at(1));
    if constexpr (S::kConfig.blocks == 1) {
      second_kept(w, p0, p1, s1, shift);
    } else {
      second(w, p0, p1, s1, shift);
      wait(v_tile(group, 1), 0);
      start_output<ptx::Accumulate::add>(w, p1, 1);
    }
  }

  // The warpgroup has read slot `slot` of tile `i`: starts the copy of its next tile, if there is one.
  __device__ __forceinline__ void refill(int i, int tiles) const {
    if (i + kSlots >= tiles) return;
    ptx::named_barrier_sync(kGroupIsDone + group, kGroupThreads);
    if (warp == 0 && lane == 0) copies.start_next(group, i + kSlots);
    __syncwarp();
  }

  // Processes the tiles after the first two.
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
      this->template exponentials<0, S::kKeyProducts>(p, w.sums, s, shift);
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

}  // namespace flashcore::cuda::forward_sm90::latency
