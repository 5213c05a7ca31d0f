// Copies rows of Q, K and V into swizzled shared-memory tiles, by 16-byte asynchronous copies.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/exact_rows.cuh"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// Starts this thread's copies of a tile whose first row is at `first`. Only `rows` rows, at
// least one, and `chunks` pieces of each exist; the rest of the tile becomes zero. A thread
// keeps its chunk and advances by a multiple of 8 rows, so its swizzle never changes.
template <class Tile>
__device__ __forceinline__ void load_tile(unsigned char* tile, const uint8_t* first,
                                          int64_t row_stride, int rows, int chunks) {
  constexpr int kRowsPerPass = kThreads / Tile::kRowChunks;
  constexpr int kPasses = Tile::kRows / kRowsPerPass;
  static_assert(kThreads % Tile::kRowChunks == 0 && kRowsPerPass % 8 == 0 && kPasses > 0);
  const int thread = ptx::thread_index();
  const int chunk = thread % Tile::kRowChunks, row = thread / Tile::kRowChunks;
  unsigned char* const to = tile + Tile::chunk_offset(row, chunk);
  const uint8_t* from = first + row * row_stride + chunk * tile::kChunkBytes;
  if (rows >= Tile::kRows && chunks == Tile::kRowChunks) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      ptx::cp_async_16(to + i * kRowsPerPass * Tile::kPanelRowBytes, from);
      from += kRowsPerPass * row_stride;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const bool valid = row + i * kRowsPerPass < rows && chunk < chunks;
      ptx::cp_async_16(to + i * kRowsPerPass * Tile::kPanelRowBytes, valid ? from : first, valid);
      from += kRowsPerPass * row_stride;
    }
  }
}

template <class S>
__device__ __forceinline__ void load_queries(const Params& p, typename S::Shared& smem) {
  const Task& task = smem.work.task;
  load_tile<typename S::QTile>(
      smem.q, row_pointer(p.q, task.batch, task.head, task.q_row + task.first_query), p.q.row,
      task.len_q - task.first_query, p.head_dim_qk / kChunkBytes);
}

// Copies tile `tile` of K and V into its stage, as its own group. Rows past the
// keys in use become zero: their contents must not be multiplied by a probability.
template <class S>
__device__ __forceinline__ void load_keys(const Params& p, typename S::Shared& smem, int tile) {
  const Task& task = smem.work.task;
  const int first = tile * S::kBlockKv, rows = task.limits.len_kv - first;
  const int row = task.kv_row + first;
  auto& stage = smem.kv[tile % kStages];
  load_tile<typename S::KvTile>(stage[0], row_pointer(p.k, task.batch, task.kv_head, row), p.k.row,
                                rows, p.head_dim_qk / kChunkBytes);
  load_tile<typename S::KvTile>(stage[1], row_pointer(p.v, task.batch, task.kv_head, row), p.v.row,
                                rows, p.head_dim_v / kChunkBytes);
  ptx::cp_async_commit();
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
