// What backward_sm90 does by rows where a problem has options or a head dimension below its config's:
// row statistics, tasks, dQ from its sums, dSinks, and zeros in packed gradients.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact_options.cuh"
#include "cuda/backward_sm90/common/option_rows.cuh"
#include "cuda/backward_sm90/common/row_stats.cuh"
#include "cuda/backward_sm90/throughput/entry_task.hpp"
#include "cuda/backward_sm90/throughput/finish.cuh"
#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

static_assert(kRowWarps == kConsumerWarps);

// Blocks of queries in all heads.
constexpr int64_t all_blocks(const OptionParams& p) {
  return int64_t{block_batch(p)} * p.heads_q * p.q_blocks;
}

// As begin_kernel.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads)
    begin_options_kernel(const __grid_constant__ OptionParams p) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kLanes = kConfig.head_dim / kLaneDims, kBlockQ = kConfig.block_q;
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const int64_t row = thread / kLanes;  // of all blocks
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const int64_t tiles = p.order.size();
  if (thread == 0) *p.next_tile = 0;
  if (is_packed(p) && blockIdx.x == 0) {
    const bool falls = do_starts_fall(p);
    if (thread == 0) *p.starts_fall = falls ? 1 : 0;
  }
  for (int64_t i = thread; i < tiles; i += int64_t{gridDim.x} * kRowThreads) {
    p.not_finite[i] = 0;
    const EntryTask task = entry_task(p, static_cast<uint32_t>(i), kBlockQ);
    p.tasks[i] = task;
  }
  if (row >= all_blocks(p) * kBlockQ) return;
  if (!p.deterministic) {
    auto* const sums =
        reinterpret_cast<float4*>(p.sums + row * kConfig.head_dim + lane * kLaneDims);
    sums[0] = sums[1] = make_float4(0, 0, 0, 0);
  }
  const int64_t number = row / kBlockQ;
  const auto in_block = static_cast<int>(row - number * kBlockQ);
  if (lane == 1 && in_block < kConsumers) p.turns[number * kConsumers + in_block] = 0;
  write_row_stats_of_entry<kLanes, Element>(p, p.options, row, kBlockQ, lane);
}

// rows.cuh has the same as part of a function, whose instructions measurements are bound to.
//
// dQ of a block, and which of its rows are not finite.
template <int kConfigIndex>
struct BlockRows {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kStep = kConfig.head_dim + 8;  // from row to row, in rows of 16-byte chunks
  alignas(16) uint16_t x[kConfig.block_q][kStep];
  uint32_t not_finite[kConfig.block_q];
};

// All kRowThreads threads of a block call it, before any row is marked. `sums`: of a thread's warp.
template <int kConfigIndex, class Element>
__device__ __forceinline__ void gather_sums(BlockRows<kConfigIndex>& rows, const float4* sums,
                                            float scale) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
#pragma unroll 4
  for (int n = 0; n < kConfig.dq_products(); ++n) {
    const float4 x = sums[n * 32 + lane];
    const float of[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const SumPlace place = sum_place(kConfig, warp, n, lane, e);
      rows.x[place.query][place.dim] = static_cast<uint16_t>(Element::pack(of[e] * scale, 0));
      if (of[e] * 0 != 0) atomicExch(&rows.not_finite[place.query], 1U);
    }
  }
}

// The sums of block `number` that a thread's warp has.
template <int kConfigIndex>
__device__ __forceinline__ const float4* warp_sums(const Params& p, uint32_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return reinterpret_cast<const float4*>(p.sums + int64_t{number} * kConfig.block_sums() +
                                         warp * (kConfig.dq_products() * 32 * kSumsFloats));
}

// dQ of a block of queries. Packed batches add in a fixed order.
template <int kConfigIndex, class Element>
__device__ __forceinline__ void store_block(const OptionParams& p, uint32_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q, kDims = kConfig.head_dim;
  const EntryBlock block = query_block(p, number, kBlockQ);
  const EntryRows entry = entry_rows(p, p.options.band, block.entry, kBlockQ);
  const int first = block.block * kBlockQ, end = p.seqlen_q;
  using Rows = BlockRows<kConfigIndex>;
  Rows& rows = ptx::static_shared<Rows>();
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kBlockQ; i += kRowThreads) rows.not_finite[i] = 0;
  __syncthreads();
  const int warp = thread / 32, lane = thread % 32;
  gather_sums<kConfigIndex, Element>(rows, warp_sums<kConfigIndex>(p, number), p.scale);
  __syncthreads();
  auto* const to = static_cast<uint16_t*>(p.dq.data) + entry.batch * p.dq.batch +
                   block.head * p.dq.head + int64_t{entry.q_row} * p.dq.row;
  constexpr int kChunks = kDims / 8;
  for (int i = thread; i < kBlockQ * kChunks; i += kRowThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    if (first + row >= end || column >= p.head_dim_qk || rows.not_finite[row] != 0) continue;
    *reinterpret_cast<uint4*>(to + (first + row) * p.dq.row + column) =
        *reinterpret_cast<const uint4*>(&rows.x[row][column]);
  }
  const ExactEntry exact{p, p.options, entry, kConfig.block_q};
  for (int row = warp; row < kBlockQ; row += kRowWarps) {
    if (first + row >= end || rows.not_finite[row] == 0) continue;
    compute_entry_query<kDims, Element>(exact, block.head, first + row, lane);
  }
}

template <int kConfigIndex, class Element>
__device__ __forceinline__ void compute_tile_exactly(const OptionParams& p, uint32_t index) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  const KeyTile place = key_tile(p.order, index);
  const EntryBlock tile = key_block(p, place.batch_head, place.tile, kBlockKeys);
  const EntryRows entry = entry_rows(p, p.options.band, tile.entry, kConfig.block_q);
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int end =
      min((tile.block + 1) * kBlockKeys, is_packed(p) ? entry.limits.len_kv : p.seqlen_kv);
  const ExactEntry exact{p, p.options, entry, kConfig.block_q};
  for (int key = tile.block * kBlockKeys + warp; key < end; key += kRowWarps) {
    compute_entry_key<kConfig.head_dim, Element>(exact, tile.head, key, lane);
  }
}

// As end_kernel. Two blocks per SM: ptxas goes for three by itself, and spills.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads, 2)
    end_options_kernel(const __grid_constant__ OptionParams p) {
  const int64_t blocks = all_blocks(p);
  if (blockIdx.x < blocks) {
    store_block<kConfigIndex, Element>(p, blockIdx.x);
    return;
  }
  const auto index = static_cast<uint32_t>(blockIdx.x - blocks);
  if (p.not_finite[index] != 0) compute_tile_exactly<kConfigIndex, Element>(p, index);
}

// Returns whether block `number` of queries has rows, but no tile of keys visits it.
template <int kConfigIndex>
__device__ __forceinline__ bool is_unvisited(const OptionParams& p, int64_t number) {
  constexpr int kBlockQ = kConfigs[kConfigIndex].block_q;
  const EntryBlock block = query_block(p, static_cast<uint32_t>(number), kBlockQ);
  const EntryRows entry = entry_rows(p, p.options.band, block.entry, kBlockQ);
  if (is_packed(p) && (block.block < 0 || block.block * kBlockQ >= entry.len_q)) return false;
  return key_tiles(entry.limits, entry.len_q, block.block, kBlockQ).empty();
}

template <int kConfigIndex, class Element>
__device__ __forceinline__ void finish_block(const OptionParams& p, int64_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q;
  const bool unvisited = is_unvisited<kConfigIndex>(p, number);
  const EntryBlock block = query_block(p, static_cast<uint32_t>(number), kBlockQ);
  const EntryRows entry = entry_rows(p, p.options.band, block.entry, kBlockQ);
  const int first = block.block * kBlockQ;
  const int end = min(first + kBlockQ, is_packed(p) ? entry.len_q : p.seqlen_q);
  auto* const to = static_cast<uint16_t*>(p.dq.data) + entry.batch * p.dq.batch +
                   block.head * p.dq.head + int64_t{entry.q_row} * p.dq.row;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const ExactEntry exact{p, p.options, entry, kBlockQ};
  for (int query = first + warp; query < end; query += kRowWarps) {
    uint16_t* const row = to + query * p.dq.row;
    if (unvisited) {
      store_zeros(row, p.head_dim_qk, lane);
    } else if (is_not_finite<Element>(row, p.head_dim_qk, lane)) {
      compute_entry_query<kConfig.head_dim, Element>(exact, block.head, query, lane);
    }
  }
}

template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads, 2)
    finish_options_kernel(const __grid_constant__ OptionParams p) {
  finish(
      p, all_blocks(p), [&](int64_t block) { return is_unvisited<kConfigIndex>(p, block); },
      [&](int64_t block) { finish_block<kConfigIndex, Element>(p, block); },
      [&](uint32_t tile) { compute_tile_exactly<kConfigIndex, Element>(p, tile); });
}

}  // namespace flashcore::cuda::backward_sm90::throughput
