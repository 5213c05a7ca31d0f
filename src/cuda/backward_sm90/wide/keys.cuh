// A block for 64 keys: computes their dK and dV, over all queries that see them.
//
//   producers   | K Q[0]   V dO[0] | Q[1]   dO[1] | ...                   two stages, one warp each
//   consumer 0  | S | P -> | dV, S next | P -> | ...
//   consumer 1  | dP |  -> dS | dK, dP next |  -> dS | ...
//
// Each thread of consumer 0 passes P to the same thread of consumer 1: both have the same pairs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/wide/products.cuh"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90::wide {

struct KeysShared {
  alignas(tile::kTileAlignment) unsigned char k[kTileBytes];
  unsigned char v[kTileBytes];
  unsigned char q[kStages][kTileBytes], d_o[kStages][kTileBytes];
  unsigned char exchange[kStages][kExchangeBytes];
  alignas(16) float row_stats[kStages][2][kRows];
  // Per stage: the step's first query, relative to the tile's first key, or kNoMask if all pairs are visible.
  int first[kStages];
  uint64_t k_full, v_full;
  uint64_t q_full[kStages], q_empty[kStages], o_full[kStages], o_empty[kStages];
  uint64_t p_full[kStages], p_empty[kStages];
};
static_assert(sizeof(KeysShared) <= kKeysBytes);

inline constexpr int kNoMask = 1 << 30;
// Arrivals per empty stage: each thread of the consumer that reads its statistics, each warp of the other.
inline constexpr int kEmptyArrivals = kWarpgroupThreads + kWarpgroupWarps;
inline constexpr int kRowStatsBytes = 4 * kRows;

struct KeyTask {
  int batch, kv_head, tile;
  TileRange range;  // of steps
  int steps;        // the range, once per query head
  EntryRows rows;   // of its sequence
};

// Finding a task requires loads from memory with options, so one thread does it.
struct OptionKeysShared : KeysShared {
  KeyTask task;
};
static_assert(sizeof(OptionKeysShared) <= kSharedBytes);

template <class P>
__device__ __forceinline__ KeyTask find_key_task(const P& p, uint32_t index) {
  const KeyTile place = key_tile(p.key_order, index);
  const EntryBlock tile = key_block(p, place.batch_head, place.tile, kRows);
  KeyTask task;
  task.rows = entry_rows(p, tile.entry, kBlockQ);
  task.batch = task.rows.batch;
  task.kv_head = tile.head;
  task.tile = tile.block;
  if (!kHasOptions<P> || tile.block >= 0) {
    const attention::BandLimits& limits = kHasOptions<P> ? task.rows.limits : p.limits;
    task.range = query_steps(limits, task.rows.len_q, tile.block);
  }
  task.steps = task.range.empty() ? 0 : task.range.size() * p.group;
  return task;
}

// The task of this block; with options, a reference to shared memory, which takes no registers.
template <class P>
__device__ __forceinline__ decltype(auto) own_key_task(const P& p, uint32_t index) {
  if constexpr (kHasOptions<P>) {
    return static_cast<const KeyTask&>(
        reinterpret_cast<const OptionKeysShared*>(ptx::dynamic_shared())->task);
  } else {
    return find_key_task(p, index);
  }
}

// Iterates over the steps of a task.
struct KeyWalk {
  const KeyTask& task;
  int head, step;

  __device__ __forceinline__ KeyWalk(const Params& p, const KeyTask& of)
      : task(of), head(of.kv_head * p.group), step(of.range.begin) {}
  __device__ __forceinline__ void advance() {
    if (++step < task.range.end) return;
    step = task.range.begin;
    ++head;
  }
};

__device__ __forceinline__ uint32_t parity_of(int number) { return number / kStages % 2; }

// Warp 0: K and Q, with -LSE log2(e) of its rows; warp 1: V and dO, with delta. One thread of each.
template <bool kOfKeys>
__device__ __forceinline__ void produce_for_keys(KeysShared& smem, const Maps& maps,
                                                 const Params& p, const KeyTask& task) {
  const int first_key = task.tile * kRows;
  const uint32_t own_full = ptx::shared_address(kOfKeys ? &smem.k_full : &smem.v_full);
  ptx::mbarrier_arrive_expect(own_full, kTileBytes);
  load_tile(ptx::shared_address(kOfKeys ? smem.k : smem.v), kOfKeys ? maps.k : maps.v, own_full,
            task.rows.kv_row + first_key, task.kv_head, task.batch);
  KeyWalk walk(p, task);
#pragma unroll 1
  for (int number = 0; number < task.steps; ++number, walk.advance()) {
    const int stage = number % kStages, row = walk.step * kRows;
    const uint32_t empty =
        ptx::shared_address(kOfKeys ? &smem.q_empty[stage] : &smem.o_empty[stage]);
    const uint32_t full = ptx::shared_address(kOfKeys ? &smem.q_full[stage] : &smem.o_full[stage]);
    ptx::mbarrier_wait(empty, parity_of(number) ^ 1);
    if (kOfKeys) {
      smem.first[stage] = task.range.needs_mask(walk.step) ? row - first_key : kNoMask;
    }
    ptx::mbarrier_arrive_expect(full, kTileBytes + kRowStatsBytes);
    const float* const row_stats = p.row_stats +
                                   (int64_t{task.batch * p.heads_q + walk.head} * p.q_blocks +
                                    task.rows.first_block + row / kBlockQ) *
                                       (2 * kBlockQ) +
                                   row % kBlockQ + (kOfKeys ? 0 : kBlockQ);
    ptx::bulk_load(ptx::shared_address(smem.row_stats[stage][kOfKeys ? 0 : 1]), row_stats,
                   kRowStatsBytes, full);
    load_tile(ptx::shared_address(kOfKeys ? smem.q[stage] : smem.d_o[stage]),
              kOfKeys ? maps.q : maps.d_o, full, task.rows.q_row + row, walk.head, task.batch);
  }
}

// Consumer 0 (kWeights) computes S and dV, consumer 1 dP and dK. Of a
// step's two tiles, one is an operand of its scores, the other of its sums.
template <class Element, bool kWeights, class P>
struct KeyConsumer {
  const P& p;
  uint32_t shared;  // its address
  Sums sums;
  Scores a;
  Weights w;

  static constexpr uint32_t kLeft = kWeights ? offsetof(KeysShared, k) : offsetof(KeysShared, v);
  static constexpr uint32_t kScoreTiles =
      kWeights ? offsetof(KeysShared, q) : offsetof(KeysShared, d_o);
  static constexpr uint32_t kSumTiles =
      kWeights ? offsetof(KeysShared, d_o) : offsetof(KeysShared, q);
  static constexpr uint32_t kLeftFull =
      kWeights ? offsetof(KeysShared, k_full) : offsetof(KeysShared, v_full);
  static constexpr uint32_t kScoreFull =
      kWeights ? offsetof(KeysShared, q_full) : offsetof(KeysShared, o_full);
  static constexpr uint32_t kScoreEmpty =
      kWeights ? offsetof(KeysShared, q_empty) : offsetof(KeysShared, o_empty);
  static constexpr uint32_t kSumFull =
      kWeights ? offsetof(KeysShared, o_full) : offsetof(KeysShared, q_full);
  static constexpr uint32_t kSumEmpty =
      kWeights ? offsetof(KeysShared, o_empty) : offsetof(KeysShared, q_empty);

  __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) const {
    ptx::mbarrier_wait_together(shared + barrier, parity);
  }
  // The statistics of a lane's two queries of product 0.
  __device__ __forceinline__ uint32_t row_stats_at(uint32_t stage) const {
    return shared + offsetof(KeysShared, row_stats) +
           (stage * 2 + (kWeights ? 0 : 1)) * (4 * kRows) + lane_index() % 4 * 8;
  }
  __device__ __forceinline__ uint32_t exchange_at(uint32_t stage) const {
    return shared + offsetof(KeysShared, exchange) + stage * kExchangeBytes +
           warp_in_group() * (kExchangeBytes / kWarpgroupWarps) + lane_index() * 16;
  }

  __device__ __forceinline__ const attention::BandLimits& own_limits() const {
    if constexpr (kHasOptions<P>) {
      return own_key_task(p, 0).rows.limits;
    } else {
      return p.limits;
    }
  }

  // Sets the score of pairs that are not visible to -inf.
  __device__ __forceinline__ void mask(uint32_t stage, int keys) {
    const int first = reinterpret_cast<const KeysShared*>(ptx::dynamic_shared())->first[stage];
    if (first == kNoMask) return;
    const auto l = static_cast<int>(lane_index());
    const int key = static_cast<int>(warp_in_group()) * 16 + l / 4, column0 = first + 2 * (l % 4);
    const attention::BandLimits& limits = own_limits();
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = key + 8 * slot;
      const int begin = row - limits.high - column0;
      const int end = row < keys ? row - limits.low + 1 - column0 : begin;
#pragma unroll
      for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
        for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
          const int column = 8 * n + e % 2;
          if (column < begin || column >= end) a[n][e] = attention::kNoKey;
        }
      }
    }
  }

  // Turns the scores in a into P, and packs w; `given`: for consumer 1, P times the softcap's slopes.
  __device__ __forceinline__ void exponentiate_capped(uint32_t row_stats, Weights& given) {
#pragma unroll
    for (int n = 0; n < kScoreProducts; ++n) {
      const float2 lse = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        float of[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = a[n][2 * slot + e];
          const CappedScore capped = capped_score(p.options, score);
          score = ptx::exp2_approx(capped.log2 + (e == 0 ? lse.x : lse.y));
          of[e] = score * capped.slope;
        }
        given[n / 2][n % 2 * 2 + slot] = Element::pack(of[0], of[1]);
      }
    }
  }
  __device__ __forceinline__ void give(int number, const Weights& given) {
    const uint32_t stage = number % kStages;
    wait(offsetof(KeysShared, p_empty) + 8 * stage, parity_of(number) ^ 1);
    const uint32_t to = exchange_at(stage);
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step) {
      ptx::store_shared_x4(to + step * (16 * kWarpThreads), given[step]);
    }
    ptx::mbarrier_arrive(shared + offsetof(KeysShared, p_full) + 8 * stage);
  }

  // Turns the scores in a into P, which consumer 1 also gets.
  __device__ __forceinline__ void weigh(int number, int keys) requires kWeights {
    const uint32_t stage = number % kStages;
    mask(stage, keys);
    const uint32_t row_stats = row_stats_at(stage);
    if constexpr (kHasOptions<P>) {
      if (p.options.cap.cap_log2 > 0) {
        Weights given;
        exponentiate_capped(row_stats, given);
        ptx::mbarrier_arrive(shared + kScoreEmpty + 8 * stage);
        pack<Element>(w, a);
        return give(number, given);
      }
    }
    const float scale = p.scale_log2;
#pragma unroll
    for (int n = 0; n < kScoreProducts; ++n) {
      const float2 lse = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        a[n][e] = ptx::exp2_approx(fmaf(a[n][e], scale, e % 2 == 0 ? lse.x : lse.y));
      }
    }
    ptx::mbarrier_arrive(shared + kScoreEmpty + 8 * stage);
    pack<Element>(w, a);
    give(number, w);
  }
  // Turns dP in a into dS.
  __device__ __forceinline__ void weigh(int number, int /*keys*/) requires(!kWeights) {
    const uint32_t stage = number % kStages, row_stats = row_stats_at(stage),
                   from = exchange_at(stage);
    wait(offsetof(KeysShared, p_full) + 8 * stage, parity_of(number));
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step) {
      const uint4 x = ptx::load_shared_x4(from + step * (16 * kWarpThreads));
      const uint32_t weights[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = 2 * step + half;
        const float2 delta = ptx::load_shared_x2(row_stats + 32 * n);
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          const float2 weight = Element::unpack(weights[2 * half + slot]);
          w[step][2 * half + slot] = Element::pack(weight.x * (a[n][2 * slot] - delta.x),
                                                   weight.y * (a[n][2 * slot + 1] - delta.y));
        }
      }
    }
    ptx::mbarrier_arrive(shared + offsetof(KeysShared, p_empty) + 8 * stage);
    ptx::mbarrier_arrive(shared + kScoreEmpty + 8 * stage);
  }

  __device__ __forceinline__ void run(int steps, int keys) {
    clear(a);
    wait(kLeftFull, 0);
    wait(kScoreFull, 0);
    ptx::warpgroup_fence();
    issue_scores<Element>(a, shared + kLeft, shared + kScoreTiles);
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(a);
    weigh(0, keys);
#pragma unroll 1
    for (int number = 0; number + 1 < steps; ++number) {
      const uint32_t stage = number % kStages, next = stage ^ 1;
      wait(kSumFull + 8 * stage, parity_of(number));
      ptx::warpgroup_fence();
      issue_sums<Element>(sums, w, shared + kSumTiles + stage * kTileBytes);
      wait(kScoreFull + 8 * next, parity_of(number + 1));
      ptx::warpgroup_fence();
      issue_scores<Element>(a, shared + kLeft, shared + kScoreTiles + next * kTileBytes);
      ptx::warpgroup_wait<1>();
      pin(sums);
      release(shared + kSumEmpty + 8 * stage);
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(a);
      weigh(number + 1, keys);
    }
    const int number = steps - 1;
    wait(kSumFull + 8 * (number % kStages), parity_of(number));
    ptx::warpgroup_fence();
    issue_sums<Element>(sums, w, shared + kSumTiles + number % kStages * kTileBytes);
    ptx::warpgroup_wait<0>();
    pin(sums);
  }
};

template <class Element, bool kWeights, class P>
__device__ __forceinline__ void consume_keys(const Maps& maps, const P& p, uint32_t index) {
  KeyConsumer<Element, kWeights, P> c{.p = p, .shared = ptx::shared_address(ptx::dynamic_shared())};
  clear(c.sums);
  {
    const auto& task = own_key_task(p, index);
    if (task.steps > 0) {
      c.run(task.steps, c.own_limits().len_kv - task.tile * kRows);
      if (!all_finite(c.sums)) atomicExch(p.not_finite + p.query_order.size() + index, 1U);
    }
  }
  const auto& task = own_key_task(p, index);
  // Only consumer 0 reads K, and only consumer 1 reads V.
  const uint32_t tile = c.shared + c.kLeft;
  stage_sums<Element>(c.sums, kWeights ? 1 : p.scale, tile, kWeights ? 0 : 1);
  const int row = task.tile * kRows;
  if constexpr (kHasOptions<P>) {
    if (is_packed(p)) {
      if (task.tile < 0) return;
      return store_rows(tile, kWeights ? p.dv : p.dk, kWeights ? p.head_dim_v : p.head_dim_qk,
                        task.rows.kv_row + row, task.rows.limits.len_kv - row, task.kv_head);
    }
  }
  store_tile(tile, kWeights ? maps.dv : maps.dk, row, p.seqlen_kv, task.kv_head, task.batch);
}

__device__ __forceinline__ void make_key_barriers(KeysShared& smem) {
  ptx::mbarrier_init(ptx::shared_address(&smem.k_full), 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.v_full), 1);
  for (int stage = 0; stage < kStages; ++stage) {
    ptx::mbarrier_init(ptx::shared_address(&smem.q_full[stage]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.o_full[stage]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.q_empty[stage]), kEmptyArrivals);
    ptx::mbarrier_init(ptx::shared_address(&smem.o_empty[stage]), kEmptyArrivals);
    ptx::mbarrier_init(ptx::shared_address(&smem.p_full[stage]), kWarpgroupThreads);
    ptx::mbarrier_init(ptx::shared_address(&smem.p_empty[stage]), kWarpgroupThreads);
  }
  ptx::mbarrier_init_fence();
}

template <class Element, class P>
__device__ __forceinline__ void run_keys(const Maps& maps, const P& p, uint32_t index) {
  KeysShared& smem = *reinterpret_cast<KeysShared*>(ptx::dynamic_shared());
  if (threadIdx.x == 0) {
    make_key_barriers(smem);
    if constexpr (kHasOptions<P>) {
      reinterpret_cast<OptionKeysShared*>(ptx::dynamic_shared())->task = find_key_task(p, index);
    }
  }
  __syncthreads();
  const uint32_t group =
      ptx::uniform(static_cast<uint32_t>(ptx::thread_index()) / kWarpgroupThreads);
  if (group == 0) {
    ptx::release_registers<kProducerRegisters>();
    const auto warp = static_cast<int>(threadIdx.x / kWarpThreads);
    const auto& task = own_key_task(p, index);
    if (threadIdx.x % kWarpThreads != 0 || task.steps == 0) return;
    if (warp == 0) produce_for_keys<true>(smem, maps, p, task);
    if (warp == 1) produce_for_keys<false>(smem, maps, p, task);
  } else {
    ptx::acquire_registers<kConsumerRegisters>();
    if (group == 1) {
      consume_keys<Element, true>(maps, p, index);
    } else {
      consume_keys<Element, false>(maps, p, index);
    }
  }
}

}  // namespace flashcore::cuda::backward_sm90::wide
