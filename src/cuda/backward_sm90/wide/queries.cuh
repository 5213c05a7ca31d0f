// A block for 128 queries: computes their dQ, over all keys that they see.
//
//   producers   | Q K[0]   dO V | K[1] V | K[2] V | ...
//   a consumer  | S dP | P, dS | dQ, S next covers.. dP next covers P | dS | dQ ...
//
// Each consumer has 64 queries, and exchanges nothing with the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/wide/products.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90::wide {

struct QueriesShared {
  alignas(tile::kTileAlignment) unsigned char q[kConsumers][kTileBytes];
  unsigned char d_o[kConsumers][kTileBytes];
  unsigned char k[kStages][kTileBytes];
  unsigned char v[kTileBytes];
  uint64_t q_full, o_full;
  uint64_t k_full[kStages], k_empty[kStages], v_full, v_empty;
};
static_assert(sizeof(QueriesShared) <= kQueriesBytes);

struct QueryTask {
  int batch, head, block;
  TileRange range;  // of KV tiles
  EntryRows rows;   // of its sequence
};

// Finding a task requires loads from memory with options, so one thread does it.
struct OptionQueriesShared : QueriesShared {
  QueryTask task;
};
static_assert(sizeof(OptionQueriesShared) <= kQueriesBytes);

template <class P>
__device__ __forceinline__ QueryTask find_query_task(const P& p, uint32_t index) {
  const attention::TileOrder::Place place = p.query_order.at(index);
  const EntryBlock block =
      query_block(p, static_cast<int>(place.batch_head), static_cast<int>(place.q_tile), kBlockQ);
  QueryTask task;
  task.rows = entry_rows(p, block.entry, kBlockQ);
  task.batch = task.rows.batch;
  task.head = block.head;
  task.block = block.block;
  if (!kHasOptions<P> || block.block >= 0) {
    const attention::BandLimits& limits = kHasOptions<P> ? task.rows.limits : p.limits;
    task.range = key_tiles(limits, task.rows.len_q, block.block);
  }
  return task;
}

// The task of this block; with options, a reference to shared memory, which takes no registers.
template <class P>
__device__ __forceinline__ decltype(auto) own_query_task(const P& p, uint32_t index) {
  if constexpr (kHasOptions<P>) {
    return static_cast<const QueryTask&>(
        reinterpret_cast<const OptionQueriesShared*>(ptx::dynamic_shared())->task);
  } else {
    return find_query_task(p, index);
  }
}

// Warp 0: Q and K; warp 1: dO and V. One thread of each.
template <bool kOfScores>
__device__ __forceinline__ void produce_for_queries(QueriesShared& smem, const Maps& maps,
                                                    const Params& p, const QueryTask& task) {
  const uint32_t own_full = ptx::shared_address(kOfScores ? &smem.q_full : &smem.o_full);
  ptx::mbarrier_arrive_expect(own_full, kConsumers * kTileBytes);
  for (int group = 0; group < kConsumers; ++group) {
    load_tile(ptx::shared_address(kOfScores ? smem.q[group] : smem.d_o[group]),
              kOfScores ? maps.q : maps.d_o, own_full,
              task.rows.q_row + task.block * kBlockQ + group * kRows, task.head, task.batch);
  }
  const int kv_head = task.head / p.group;
#pragma unroll 1
  for (int number = 0; number < task.range.size(); ++number) {
    const int stage = kOfScores ? number % kStages : 0;
    const uint32_t turn = kOfScores ? number / kStages % 2 : number % 2;
    const uint32_t full = ptx::shared_address(kOfScores ? &smem.k_full[stage] : &smem.v_full);
    const uint32_t empty = ptx::shared_address(kOfScores ? &smem.k_empty[stage] : &smem.v_empty);
    ptx::mbarrier_wait(empty, turn ^ 1);
    ptx::mbarrier_arrive_expect(full, kTileBytes);
    load_tile(ptx::shared_address(kOfScores ? smem.k[stage] : smem.v), kOfScores ? maps.k : maps.v,
              full, task.rows.kv_row + (task.range.begin + number) * kRows, kv_head, task.batch);
  }
}

template <class Element, class P>
struct QueryConsumer {
  const P& p;
  uint32_t shared;  // its address
  uint32_t group;   // 0 or 1
  Sums dq;
  Scores s, dp;
  Weights ds;
  float lse[2], delta[2];  // of a lane's two queries: -LSE log2(e), delta

  __device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) const {
    ptx::mbarrier_wait_together(shared + barrier, parity);
  }
  __device__ __forceinline__ int own_query() const {
    return static_cast<int>(group * kRows + warp_in_group() * 16 + lane_index() / 4);
  }
  __device__ __forceinline__ void load_row_stats(const QueryTask& task) {
    const float* row_stats =
        p.row_stats +
        (int64_t{task.batch * p.heads_q + task.head} * p.q_blocks + task.block) * (2 * kBlockQ) +
        own_query();
    row_stats += int64_t{task.rows.first_block} * (2 * kBlockQ);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      lse[slot] = row_stats[8 * slot];
      delta[slot] = row_stats[kBlockQ + 8 * slot];
    }
  }

  __device__ __forceinline__ void issue_s(uint32_t stage) {
    issue_scores<Element>(s, shared + offsetof(QueriesShared, q) + group * kTileBytes,
                          shared + offsetof(QueriesShared, k) + stage * kTileBytes);
  }
  __device__ __forceinline__ void issue_dp() {
    issue_scores<Element>(dp, shared + offsetof(QueriesShared, d_o) + group * kTileBytes,
                          shared + offsetof(QueriesShared, v));
  }
  __device__ __forceinline__ void issue_dq(uint32_t stage) {
    issue_sums<Element>(dq, ds, shared + offsetof(QueriesShared, k) + stage * kTileBytes);
  }

  __device__ __forceinline__ const attention::BandLimits& own_limits() const {
    if constexpr (kHasOptions<P>) {
      return own_query_task(p, 0).rows.limits;
    } else {
      return p.limits;
    }
  }

  // Sets the score of pairs that are not visible to -inf.
  __device__ __forceinline__ void mask(int first_query, int first_key) {
    const int key0 = first_key + 2 * static_cast<int>(lane_index() % 4);
    const attention::BandLimits& limits = own_limits();
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int query = first_query + own_query() + 8 * slot;
      const attention::ColumnRange seen = attention::visible_columns(limits, query, key0);
#pragma unroll
      for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
        for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
          const int column = 8 * n + e % 2;
          if (column < seen.begin || column >= seen.end) s[n][e] = attention::kNoKey;
        }
      }
    }
  }
  // Turns the scores in s into P, with a softcap times its slopes.
  __device__ __forceinline__ void exponentiate() {
    if constexpr (kHasOptions<P>) {
      if (p.options.cap.cap_log2 > 0) {
#pragma unroll
        for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const CappedScore capped = capped_score(p.options, s[n][e]);
            s[n][e] = ptx::exp2_approx(capped.log2 + lse[e / 2]) * capped.slope;
          }
        }
        return;
      }
    }
    const float scale = p.scale_log2;
#pragma unroll
    for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = ptx::exp2_approx(fmaf(s[n][e], scale, lse[e / 2]));
    }
  }
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int n = 0; n < kScoreProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] *= dp[n][e] - delta[e / 2];
    }
    pack<Element>(ds, s);
  }

  __device__ __forceinline__ void run(const TileRange& range, int first_query) {
    clear(s);
    clear(dp);
    wait(offsetof(QueriesShared, q_full), 0);
    wait(offsetof(QueriesShared, o_full), 0);
    wait(offsetof(QueriesShared, k_full), 0);
    wait(offsetof(QueriesShared, v_full), 0);
    ptx::warpgroup_fence();
    issue_s(0);
    issue_dp();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(s);
    ptx::warpgroup_pin(dp);
    release(shared + offsetof(QueriesShared, v_empty));
    if (range.needs_mask(range.begin)) mask(first_query, range.begin * kRows);
    exponentiate();
    weigh();
#pragma unroll 1
    for (int tile = range.begin; tile + 1 < range.end; ++tile) {
      const int number = tile - range.begin;
      const uint32_t stage = number % kStages, next = stage ^ 1;
      ptx::warpgroup_fence();
      issue_dq(stage);
      wait(offsetof(QueriesShared, k_full) + 8 * next, (number + 1) / kStages % 2);
      ptx::warpgroup_fence();
      issue_s(next);
      wait(offsetof(QueriesShared, v_full), (number + 1) % 2);
      ptx::warpgroup_fence();
      issue_dp();
      ptx::warpgroup_wait<2>();
      pin(dq);
      release(shared + offsetof(QueriesShared, k_empty) + 8 * stage);
      ptx::warpgroup_wait<1>();
      ptx::warpgroup_pin(s);
      if (range.needs_mask(tile + 1)) mask(first_query, (tile + 1) * kRows);
      exponentiate();
      ptx::warpgroup_wait<0>();
      ptx::warpgroup_pin(dp);
      release(shared + offsetof(QueriesShared, v_empty));
      weigh();
    }
    ptx::warpgroup_fence();
    issue_dq((range.size() - 1) % kStages);
    ptx::warpgroup_wait<0>();
    pin(dq);
  }
};

template <class Element, class P>
__device__ __forceinline__ void consume_queries(const Maps& maps, const P& p, uint32_t index,
                                                uint32_t group) {
  QueryConsumer<Element, P> c{
      .p = p, .shared = ptx::shared_address(ptx::dynamic_shared()), .group = group};
  clear(c.dq);
  {
    const auto& task = own_query_task(p, index);
    if (!task.range.empty()) {
      c.load_row_stats(task);
      c.run(task.range, task.block * kBlockQ);
      if (!all_finite(c.dq)) atomicExch(p.not_finite + index, 1U);
    }
  }
  const auto& task = own_query_task(p, index);
  const uint32_t tile = c.shared + offsetof(QueriesShared, q) + group * kTileBytes;
  const int row = task.block * kBlockQ + static_cast<int>(group) * kRows;
  stage_sums<Element>(c.dq, p.scale, tile, group);
  if constexpr (kHasOptions<P>) {
    if (is_packed(p)) {
      if (task.block < 0) return;
      return store_rows(tile, p.dq, p.head_dim_qk, task.rows.q_row + row, task.rows.len_q - row,
                        task.head);
    }
  }
  store_tile(tile, maps.dq, row, p.seqlen_q, task.head, task.batch);
}

__device__ __forceinline__ void make_query_barriers(QueriesShared& smem) {
  ptx::mbarrier_init(ptx::shared_address(&smem.q_full), 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.o_full), 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.v_full), 1);
  ptx::mbarrier_init(ptx::shared_address(&smem.v_empty), kConsumerWarps);
  for (int stage = 0; stage < kStages; ++stage) {
    ptx::mbarrier_init(ptx::shared_address(&smem.k_full[stage]), 1);
    ptx::mbarrier_init(ptx::shared_address(&smem.k_empty[stage]), kConsumerWarps);
  }
  ptx::mbarrier_init_fence();
}

template <class Element, class P>
__device__ __forceinline__ void run_queries(const Maps& maps, const P& p, uint32_t index) {
  QueriesShared& smem = *reinterpret_cast<QueriesShared*>(ptx::dynamic_shared());
  if (threadIdx.x == 0) {
    make_query_barriers(smem);
    if constexpr (kHasOptions<P>) {
      reinterpret_cast<OptionQueriesShared*>(ptx::dynamic_shared())->task =
          find_query_task(p, index);
    }
  }
  __syncthreads();
  const uint32_t group =
      ptx::uniform(static_cast<uint32_t>(ptx::thread_index()) / kWarpgroupThreads);
  if (group == 0) {
    ptx::release_registers<kProducerRegisters>();
    const auto& task = own_query_task(p, index);
    if (threadIdx.x % kWarpThreads != 0 || task.range.empty()) return;
    const auto warp = static_cast<int>(threadIdx.x / kWarpThreads);
    if (warp == 0) produce_for_queries<true>(smem, maps, p, task);
    if (warp == 1) produce_for_queries<false>(smem, maps, p, task);
  } else {
    ptx::acquire_registers<kConsumerRegisters>();
    consume_queries<Element>(maps, p, index, group - 1);
  }
}

}  // namespace flashcore::cuda::backward_sm90::wide
