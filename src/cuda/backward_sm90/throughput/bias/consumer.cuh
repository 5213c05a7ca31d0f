// A consumer of dBias' kernel: 64 keys, and all queries, of each step.
//
//   S = K Q^T, dP = V dO^T issued | terms and exponentials of S cover dP | sums += P (m dP - delta) | ...
//
// The two warpgroups exchange nothing, and drift apart: one uses the Tensor Cores while the other computes.
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/common/operand.cuh"
#include "cuda/backward_sm90/throughput/bias/shape.cuh"
#include "cuda/backward_sm90/throughput/bias/walk.hpp"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
struct BiasConsumer {
  using Shape = S;
  using Element = typename S::Element;
  using Tile = typename S::Tile;
  using DsTile = typename S::DsTile;

  typename S::Shared& smem;
  const BiasParams& params;
  uint32_t shared;  // its address
  uint32_t group;   // 0 or 1
  float a[S::kScoreProducts][4], b[S::kScoreProducts][4], sums[S::kScoreProducts][4];
  uint32_t drawn[S::kBlockQ / 64];

  __device__ __forceinline__ static uint32_t lane() { return ptx::thread_index() % kWarpThreads; }
  __device__ __forceinline__ static uint32_t warp() {
    return ptx::thread_index() / kWarpThreads % kWarpgroupWarps;
  }
  __device__ __forceinline__ void wait_full(const BiasSlot& slot) const {
    ptx::mbarrier_wait_together(shared + S::kFull + 8 * slot.at, slot.parity);
  }
  // Each thread arrives: racecheck does not follow one arrival on behalf of a warp.
  __device__ __forceinline__ void release(uint32_t slot) const {
    ptx::mbarrier_arrive(shared + S::kEmpty + 8 * slot);
  }

  __device__ __forceinline__ void clear(float (&x)[S::kScoreProducts][4]) const {
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
  }

  // d = A B^T with the consumer's rows of a slot's first tile and the rows of its second one.
  __device__ __forceinline__ void issue(float (&d)[S::kScoreProducts][4], uint32_t slot) const {
    const uint32_t at = shared + S::kRing + slot * (2 * Tile::kBytes);
    const Operand x(at + group * (kWarpgroupKeys * Tile::kPanelRowBytes), 16);
    const Operand y(at + Tile::kBytes, 16);
#pragma unroll
    for (int step = 0; step < S::kDimSteps; ++step) {
      const uint64_t x_at = x.at(tile::k_major_step<Tile>(step));
      const uint64_t y_at = y.at(tile::k_major_step<Tile>(step));
      if (step == 0) {
        Element::template multiply_ss<Accumulate::overwrite, Major::k>(d, x_at, y_at);
      } else {
        Element::template multiply_ss<Accumulate::add, Major::k>(d, x_at, y_at);
      }
    }
    ptx::warpgroup_commit();
  }

  // The statistics of a lane's two queries of product n; `which`: 0 LSE, 1 delta.
  __device__ __forceinline__ float2 row_stats(int kept, int n, int which) const {
    constexpr int kBlock = S::kConfig.block_q;
    const uint32_t at = shared + S::kRowStats + kept * (8 * kBiasTile) + lane() % 4 * 8;
    return ptx::load_shared_x2(at + 8 * n / kBlock * (8 * kBlock) + which * (4 * kBlock) +
                               8 * n % kBlock * 4);
  }

  // Sets the score of pairs that are not visible to -inf.
  __device__ __forceinline__ void mask_band(const BiasStep& step) {
    const PairTile& tile = step.tile;
    const int first = tile.query - tile.key + 2 * static_cast<int>(lane() % 4);
    const int queries = tile.last_query + 1 - tile.key, keys = tile.last_key + 1 - tile.key;
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = lane_key(*this) + 8 * slot;
      const int begin = row - step.limits.high - first;
      const int end = row < keys ? min(row - step.limits.low + 1, queries) - first : begin;
#pragma unroll
      for (int n = 0; n < S::kScoreProducts; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * n + e < begin || 8 * n + e >= end) a[n][2 * slot + e] = attention::kNoKey;
        }
      }
    }
  }
  __device__ __forceinline__ void exponentiate(int kept) {
    const float scale = params.scale_log2;
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
      const float2 lse = row_stats(kept, n, 0);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        a[n][e] = ptx::exp2_approx(fmaf(a[n][e], scale, e % 2 == 0 ? lse.x : lse.y));
      }
    }
  }
  // Words of the mask's bits are of 32 queries of a key.
  __device__ __forceinline__ void remove_masked(const PairTile& tile) {
    const attention::MaskBits& bits = params.pairs.bits;
    const uint32_t* const first = bits.words + tile.batch * bits.batch + tile.head * bits.head +
                                  tile.query / attention::kMaskWordBits * bits.query + tile.key;
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
#pragma unroll
      for (int group_of_32 = 0; group_of_32 < S::kBlockQ / attention::kMaskWordBits;
           ++group_of_32) {
        const uint32_t word =
            __ldg(first + group_of_32 * bits.query + lane_key(*this) + 8 * slot) >>
            (2 * (lane() % 4));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if ((word >> (8 * n + e) & 1U) == 0) a[4 * group_of_32 + n][2 * slot + e] = 0;
          }
        }
      }
    }
  }
  // a = P.
  __device__ __forceinline__ void make_weights(const BiasStep& step, int kept) {
    const Pairs& pairs = params.pairs;
    const auto tile = [&]() -> const PairTile& { return step.tile; };
    add_any_bias<S::kConfig.has_wide_bias()>(*this, tile, shared + S::bias_at(pairs));
    if (pairs.slopes != nullptr) add_alibi(*this, step.tile);
    if (step.is_masked != 0) mask_band(step);
    exponentiate(kept);
    if (pairs.mask.data != nullptr) remove_masked(step.tile);
    if (pairs.dropout) draw(*this, step.tile, smem.key);
  }
  // sums += a (b - delta)
  __device__ __forceinline__ void add(int kept) {
#pragma unroll
    for (int n = 0; n < S::kScoreProducts; ++n) {
      const float2 delta = row_stats(kept, n, 1);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[n][e] = fmaf(a[n][e], b[n][e] - (e % 2 == 0 ? delta.x : delta.y), sums[n][e]);
      }
    }
  }
  // sums += a (m b - delta)
  __device__ __forceinline__ void add_dropped(int kept) {
    const float rescale = params.pairs.rescale;
#pragma unroll
    for (int word = 0; word < S::kScoreProducts / 8; ++word) {
      uint32_t bits[4];
#pragma unroll
      for (uint32_t e = 0; e < 4; ++e) bits[e] = drawn_by(*this, word, e);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int n = 8 * word + i;
        const float2 delta = row_stats(kept, n, 1);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float factor = (bits[e] >> (4 * i + 3) & 1U) != 0 ? rescale : 0.0F;
          sums[n][e] =
              fmaf(a[n][e], fmaf(b[n][e], factor, -(e % 2 == 0 ? delta.x : delta.y)), sums[n][e]);
        }
      }
    }
  }

  // The tile of the bias is free for the next one before the sums are stored.
  __device__ __forceinline__ void wait_for_bias(const BiasStep& step, uint32_t parity) const {
    if (step.is_first != 0) ptx::mbarrier_wait_together(shared + S::kBiasFull, parity);
  }
  __device__ __forceinline__ void release_bias(const BiasStep& step) const {
    if (step.is_last != 0) ptx::mbarrier_arrive(shared + S::kBiasEmpty);
  }

  // A step whose first slot is full; the slot becomes its second one.
  __device__ __forceinline__ void add_step(const BiasStep& step, int kept, BiasSlot& slot,
                                           uint32_t slots, uint32_t bias_parity) {
    const uint32_t of_q = slot.at;
    ptx::warpgroup_fence();
    issue(a, of_q);
    slot.advance(slots);
    wait_full(slot);
    ptx::warpgroup_fence();
    issue(b, slot.at);
    ptx::warpgroup_wait<1>();
    ptx::warpgroup_pin(a);
    release(of_q);
    wait_for_bias(step, bias_parity);
    make_weights(step, kept);
    release_bias(step);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(b);
    if (params.pairs.dropout) {
      add_dropped(kept);
    } else {
      add(kept);
    }
  }

  __device__ __forceinline__ void run() {
    const uint32_t slots = S::slots(params.pairs);
    BiasSlot slot;
    uint32_t bias_parity = 0;
    int kept = 0;
    clear(a);
    clear(b);
    ptx::warpgroup_pin(a);
    ptx::warpgroup_pin(b);
#pragma unroll 1
    for (;;) {
      wait_full(slot);
      const BiasStep& step = smem.step[kept];
      if (step.item < 0) return;
      const int stored = step.is_last != 0 ? step.item : -1;
      if (step.is_first != 0) clear(sums);
      if (step.has_pairs != 0) {
        add_step(step, kept, slot, slots, bias_parity);
      } else {
        release(slot.at);
        slot.advance(slots);
        wait_full(slot);
        wait_for_bias(step, bias_parity);
        release_bias(step);
      }
      if (stored >= 0) {
        bias_parity ^= 1;
        mark(stored);
        store(bias_item(params, static_cast<uint32_t>(stored)), slot.at);
        ptx::fence_proxy_async();
      }
      release(slot.at);
      slot.advance(slots);
      if (++kept == S::kKept) kept = 0;
    }
  }

  // store.cuh
  __device__ void mark(int item) const;
  __device__ void store(const BiasItem& item, uint32_t slot);
  __device__ void store_rows(const BiasItem& item, uint32_t slot) const;
  __device__ void store_elements(const BiasItem& item) const;
  __device__ void add_queries();
  __device__ void store_sums_of_keys(const BiasItem& item, uint32_t slot);
};

}  // namespace flashcore::cuda::backward_sm90::throughput

#include "cuda/backward_sm90/throughput/bias/store.cuh"
