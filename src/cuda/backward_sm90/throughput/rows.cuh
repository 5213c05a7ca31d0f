// The row kernels of backward_sm90, before and after its tiles: row statistics and tasks, dQ from atomic
// sums, and rows that are not finite. OptionParams: for problems with options, or with a head dimension
// below their config's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact.cuh"
#include "cuda/backward_sm90/common/row_stats.cuh"
#include "cuda/backward_sm90/common/starts.cuh"
#include "cuda/backward_sm90/throughput/finish.cuh"
#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"
#include "cuda/backward_sm90/throughput/task.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

static_assert(kRowWarps == kConsumerWarps);

// Blocks of queries in all heads.
template <class P>
constexpr int64_t all_blocks(const P& p) {
  return int64_t{block_batch(p)} * p.heads_q * p.q_blocks;
}

// The row statistics of queries, some lanes per query, and zeros in what the tiles add to and count.
template <int kConfigIndex, class Element, class P>
__global__ void __launch_bounds__(kRowThreads) begin_kernel(const __grid_constant__ P p) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kLanes = kConfig.head_dim / kLaneDims, kBlockQ = kConfig.block_q;
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const int64_t row = thread / kLanes;  // of all blocks
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const int64_t tiles = p.order.size();
  if (thread == 0) *p.next_tile = 0;
  if constexpr (kHasOptions<P>) {
    if (is_packed(p) && blockIdx.x == 0) {
      const bool falls = do_starts_fall(p);
      if (thread == 0) *p.starts_fall = falls ? 1 : 0;
    }
  }
  for (int64_t i = thread; i < tiles; i += int64_t{gridDim.x} * kRowThreads) {
    p.not_finite[i] = 0;
    if constexpr (kHasOptions<P>) p.tasks[i] = make_task(p, static_cast<uint32_t>(i), kBlockQ);
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
  write_row_stats<kLanes, Element>(p, row, kBlockQ, lane);
}

// dQ of a block, and which of its rows are not finite.
template <int kConfigIndex>
struct BlockRows {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kStep = kConfig.head_dim + 8;  // from row to row, in rows of 16-byte chunks
  alignas(16) uint16_t x[kConfig.block_q][kStep];
  uint32_t not_finite[kConfig.block_q];
};

// Reads the sums of block `number`, by all threads of a block of kRowThreads; no row is marked yet.
template <int kConfigIndex, class Element>
__device__ __forceinline__ void gather_sums(BlockRows<kConfigIndex>& rows, const Params& p,
                                            uint32_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
  const auto* const sums =
      reinterpret_cast<const float4*>(p.sums + int64_t{number} * kConfig.block_sums() +
                                      warp * (kConfig.dq_products() * 32 * kSumsFloats));
#pragma unroll 4
  for (int n = 0; n < kConfig.dq_products(); ++n) {
    const float4 x = sums[n * 32 + lane];
    const float of[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const SumPlace place = sum_place(kConfig, warp, n, lane, e);
      rows.x[place.query][place.dim] = static_cast<uint16_t>(Element::pack(of[e] * p.scale, 0));
      if (of[e] * 0 != 0) atomicExch(&rows.not_finite[place.query], 1U);
    }
  }
}

// Row 0 of a block's sequence and head in dQ.
template <class P>
__device__ __forceinline__ uint16_t* dq_rows(const P& p, const EntryRows& entry, int head) {
  return static_cast<uint16_t*>(p.dq.data) + entry.batch * p.dq.batch + head * p.dq.head +
         int64_t{entry.q_row} * p.dq.row;
}

// dQ of a block of queries. Packed batches add in a fixed order.
template <int kConfigIndex, class Element, class P>
__device__ __forceinline__ void store_block(const P& p, uint32_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q, kDims = kConfig.head_dim;
  const EntryBlock block = query_block(p, number, kBlockQ);
  const EntryRows entry = entry_rows(p, block.entry, kBlockQ);
  const int first = block.block * kBlockQ;
  auto& rows = ptx::static_shared<BlockRows<kConfigIndex>>();
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kBlockQ; i += kRowThreads) rows.not_finite[i] = 0;
  __syncthreads();
  gather_sums<kConfigIndex, Element>(rows, p, number);
  __syncthreads();
  uint16_t* const to = dq_rows(p, entry, block.head);
  constexpr int kChunks = kDims / 8;
  for (int i = thread; i < kBlockQ * kChunks; i += kRowThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    if (first + row >= p.seqlen_q || column >= p.head_dim_qk || rows.not_finite[row] != 0) continue;
    *reinterpret_cast<uint4*>(to + (first + row) * p.dq.row + column) =
        *reinterpret_cast<const uint4*>(&rows.x[row][column]);
  }
  const ExactEntry<P> exact{p, entry, kBlockQ, block.entry};
  for (int row = thread / 32; row < kBlockQ; row += kRowWarps) {
    if (first + row >= p.seqlen_q || rows.not_finite[row] == 0) continue;
    compute_query_exactly<kDims, Element>(exact, block.head, first + row, thread % 32);
  }
}

// dK and dV of a tile of keys whose sums are not finite.
template <int kConfigIndex, class Element, class P>
__device__ __forceinline__ void compute_tile_exactly(const P& p, uint32_t index) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  const KeyTile place = key_tile(p.order, index);
  const EntryBlock tile = key_block(p, place.batch_head, place.tile, kBlockKeys);
  const EntryRows entry = entry_rows(p, tile.entry, kConfig.block_q);
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int end =
      min((tile.block + 1) * kBlockKeys, has_packed(p) ? entry.limits.len_kv : p.seqlen_kv);
  const ExactEntry<P> exact{p, entry, kConfig.block_q, tile.entry};
  for (int key = tile.block * kBlockKeys + warp; key < end; key += kRowWarps) {
    compute_key_exactly<kConfig.head_dim, Element>(exact, tile.head, key, lane);
  }
}

// A block each for the blocks of dQ, then one for each tile of keys, which does something where its
// sums are not finite. Two blocks per SM: ptxas goes for three by itself, and spills.
template <int kConfigIndex, class Element, class P>
__global__ void __launch_bounds__(kRowThreads, 2) end_kernel(const __grid_constant__ P p) {
  const int64_t blocks = all_blocks(p);
  if (blockIdx.x < blocks) {
    store_block<kConfigIndex, Element>(p, blockIdx.x);
    return;
  }
  const auto index = static_cast<uint32_t>(blockIdx.x - blocks);
  if (p.not_finite[index] != 0) compute_tile_exactly<kConfigIndex, Element>(p, index);
}

// Returns whether block `number` of queries has rows that no tile of keys visits.
template <int kConfigIndex, class P>
__device__ __forceinline__ bool is_unvisited(const P& p, int64_t number) {
  constexpr int kBlockQ = kConfigs[kConfigIndex].block_q;
  const EntryBlock block = query_block(p, static_cast<uint32_t>(number), kBlockQ);
  const EntryRows entry = entry_rows(p, block.entry, kBlockQ);
  if (has_packed(p) && (block.block < 0 || block.block * kBlockQ >= entry.len_q)) return false;
  return key_tiles(entry.limits, entry.len_q, block.block, kBlockQ).empty();
}

template <int kConfigIndex, class Element, class P>
__device__ __forceinline__ void finish_block(const P& p, int64_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q;
  const bool unvisited = is_unvisited<kConfigIndex>(p, number);
  const EntryBlock block = query_block(p, static_cast<uint32_t>(number), kBlockQ);
  const EntryRows entry = entry_rows(p, block.entry, kBlockQ);
  const int first = block.block * kBlockQ;
  const int end = min(first + kBlockQ, has_packed(p) ? entry.len_q : p.seqlen_q);
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const ExactEntry<P> exact{p, entry, kBlockQ, block.entry};
  for (int query = first + warp; query < end; query += kRowWarps) {
    uint16_t* const row = dq_rows(p, entry, block.head) + query * p.dq.row;
    if (unvisited) {
      store_zeros(row, p.head_dim_qk, lane);
    } else if (is_not_finite<Element>(row, p.head_dim_qk, lane)) {
      compute_query_exactly<kConfig.head_dim, Element>(exact, block.head, query, lane);
    }
  }
}

// Two blocks per SM, as above.
template <int kConfigIndex, class Element, class P>
__global__ void __launch_bounds__(kRowThreads, 2) finish_kernel(const __grid_constant__ P p) {
  finish(
      p, all_blocks(p), [&](int64_t block) { return is_unvisited<kConfigIndex>(p, block); },
      [&](int64_t block) { finish_block<kConfigIndex, Element>(p, block); },
      [&](uint32_t tile) { compute_tile_exactly<kConfigIndex, Element>(p, tile); });
}

}  // namespace flashcore::cuda::backward_sm90::throughput
