// The row kernels of backward_sm90: row statistics before the tiles, and dQ from atomic sums after them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact.cuh"
#include "cuda/backward_sm90/common/row_stats.cuh"
#include "cuda/backward_sm90/throughput/finish.cuh"
#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

// Blocks of queries in all heads.
constexpr int64_t all_blocks(const Params& p) { return int64_t{p.batch} * p.heads_q * p.q_blocks; }

// The row statistics of queries, some lanes per query, and zeros in what the tiles add to and count.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads) begin_kernel(const __grid_constant__ Params p) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kLanes = kConfig.head_dim / kLaneDims, kBlockQ = kConfig.block_q;
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  const int64_t row = thread / kLanes;  // of all blocks
  const auto lane = static_cast<int>(threadIdx.x % kLanes);
  const int64_t tiles = p.order.size();
  if (thread == 0) *p.next_tile = 0;
  for (int64_t i = thread; i < tiles; i += int64_t{gridDim.x} * kRowThreads) p.not_finite[i] = 0;
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

// dQ of a block of queries.
template <int kConfigIndex, class Element>
__device__ __forceinline__ void store_block(const Params& p, int64_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q, kDims = kConfig.head_dim;
  constexpr int kStep = kDims + 8;  // from row to row, in rows of 16-byte chunks
  struct Rows {
    alignas(16) uint16_t x[kBlockQ][kStep];
    uint32_t not_finite[kBlockQ];
  };
  Rows& rows = ptx::static_shared<Rows>();
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kBlockQ; i += kRowThreads) rows.not_finite[i] = 0;
  __syncthreads();
  const int64_t batch_head = number / p.q_blocks;
  const int first = static_cast<int>(number - batch_head * p.q_blocks) * kBlockQ;
  const int warp = thread / 32, lane = thread % 32;
  static_assert(kRowWarps == kConsumerWarps);
  const auto* const sums = reinterpret_cast<const float4*>(
      p.sums + number * kConfig.block_sums() + warp * (kConfig.dq_products() * 32 * kSumsFloats));
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
  __syncthreads();
  const auto batch = static_cast<int>(batch_head / p.heads_q);
  const auto head = static_cast<int>(batch_head - int64_t{batch} * p.heads_q);
  auto* const to = static_cast<uint16_t*>(p.dq.data) + batch * p.dq.batch + head * p.dq.head;
  constexpr int kChunks = kDims / 8;
  for (int i = thread; i < kBlockQ * kChunks; i += kRowThreads) {
    const int row = i / kChunks, column = i % kChunks * 8;
    if (first + row >= p.seqlen_q || rows.not_finite[row] != 0) continue;
    *reinterpret_cast<uint4*>(to + (first + row) * p.dq.row + column) =
        *reinterpret_cast<const uint4*>(&rows.x[row][column]);
  }
  for (int row = warp; row < kBlockQ; row += kRowWarps) {
    if (first + row >= p.seqlen_q || rows.not_finite[row] == 0) continue;
    compute_query_exactly<kDims, Element>(p, batch, head, first + row, kBlockQ, lane);
  }
}

// dK and dV of a tile of keys whose sums are not finite.
template <int kConfigIndex, class Element>
__device__ __forceinline__ void compute_tile_exactly(const Params& p, uint32_t index) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  const KeyTile place = key_tile(p.order, index);
  const int batch = place.batch_head / p.heads_kv, kv_head = place.batch_head % p.heads_kv;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int end = min((place.tile + 1) * kBlockKeys, p.seqlen_kv);
  for (int key = place.tile * kBlockKeys + warp; key < end; key += kRowWarps) {
    compute_key_exactly<kConfig.head_dim, Element>(p, batch, kv_head, key, kConfig.block_q, lane);
  }
}

// A block each for the blocks of dQ, then one for each tile of keys, which does something where its
// sums are not finite.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads) end_kernel(const __grid_constant__ Params p) {
  const int64_t blocks = all_blocks(p);
  if (blockIdx.x < blocks) {
    store_block<kConfigIndex, Element>(p, blockIdx.x);
    return;
  }
  const auto index = static_cast<uint32_t>(blockIdx.x - blocks);
  if (p.not_finite[index] != 0) compute_tile_exactly<kConfigIndex, Element>(p, index);
}

// Returns whether no tile of keys visits block `number` of queries.
template <int kConfigIndex>
__device__ __forceinline__ bool is_unvisited(const Params& p, int64_t number) {
  constexpr int kBlockQ = kConfigs[kConfigIndex].block_q;
  const auto block = static_cast<int>(number % p.q_blocks);
  return key_tiles(p.limits, p.seqlen_q, block, kBlockQ).empty();
}

template <int kConfigIndex, class Element>
__device__ __forceinline__ void finish_block(const Params& p, int64_t number) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  constexpr int kBlockQ = kConfig.block_q, kDims = kConfig.head_dim;
  const bool unvisited = is_unvisited<kConfigIndex>(p, number);
  const int64_t batch_head = number / p.q_blocks;
  const int first = static_cast<int>(number - batch_head * p.q_blocks) * kBlockQ;
  const auto batch = static_cast<int>(batch_head / p.heads_q);
  const auto head = static_cast<int>(batch_head - int64_t{batch} * p.heads_q);
  auto* const to = static_cast<uint16_t*>(p.dq.data) + batch * p.dq.batch + head * p.dq.head;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int end = min(first + kBlockQ, p.seqlen_q);
  for (int query = first + warp; query < end; query += kRowWarps) {
    uint16_t* const row = to + query * p.dq.row;
    if (unvisited) {
      store_zeros(row, kDims, lane);
    } else if (is_not_finite<Element>(row, kDims, lane)) {
      compute_query_exactly<kDims, Element>(p, batch, head, query, kBlockQ, lane);
    }
  }
}

// Two blocks per SM: ptxas goes for three by itself, and spills.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads, 2) finish_kernel(const __grid_constant__ Params p) {
  finish(
      p, all_blocks(p), [&](int64_t block) { return is_unvisited<kConfigIndex>(p, block); },
      [&](int64_t block) { finish_block<kConfigIndex, Element>(p, block); },
      [&](uint32_t tile) { compute_tile_exactly<kConfigIndex, Element>(p, tile); });
}

}  // namespace flashcore::cuda::backward_sm90::throughput
