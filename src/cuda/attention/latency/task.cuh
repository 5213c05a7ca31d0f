// The task of one block or cluster of a latency kernel:
// a tile of queries of one sequence and head.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/latency/params.hpp"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::attention::latency {

struct Task {
  int batch, head, kv_head;
  int map_batch;      // batch index in tensor maps: packed tensors have only one
  int first_query;    // of the tile, counted in the sequence
  int len_q, rows_q;  // queries in use, and rows of O that belong to the sequence
  int q_row, kv_row;  // rows of query 0 and key 0 in packed tensors, 0 otherwise
  BandLimits limits;
  TileRange tiles;

  __device__ bool exists() const { return first_query < rows_q; }
};

// Finds the lengths, rows and diagonal of a sequence, if sequences differ.
__device__ inline void find_own_entry(const Params& p, Task& task) {
  const Entry entry = find_entry(p, task.batch);
  if (p.cu_seqlens_q.data != nullptr) task.map_batch = 0;
  task.q_row = entry.q_row;
  task.kv_row = entry.kv_row;
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  task.limits = band_limits(p.band.left, p.band.right, entry.offset, entry.len_kv);
}

// Returns the task of queries first_query .. + block_q of the block's head and sequence: the grid's y and z.
template <bool kVaries>
__device__ __forceinline__ Task find_task_at(const Params& p, int first_query, int block_q) {
  Task task;
  task.batch = task.map_batch = static_cast<int>(blockIdx.z);
  task.head = static_cast<int>(blockIdx.y);
  task.kv_head = p.heads_per_kv_head == 1 ? task.head : task.head / p.heads_per_kv_head;
  task.first_query = first_query;
  task.len_q = task.rows_q = p.queries;
  task.q_row = task.kv_row = 0;
  task.limits = p.limits;
  if (kVaries && p.varies) find_own_entry(p, task);
  task.tiles = tile_range(task.limits, task.len_q, first_query, first_query + block_q, kBlockKv);
  return task;
}

// Values that a block reads before its first copies. The constant cache is cold at
// launch, so they are requested first, and arrive while barriers are initialised.
struct Early {
  int head, batch;
  int heads_per_kv_head, len_kv, high;
};

__device__ __forceinline__ Early read_early(const Params& p) {
  Early early;
  early.head = ptx::block_index_y();
  early.batch = ptx::block_index_z();
  early.heads_per_kv_head = ptx::read_here(p.heads_per_kv_head);
  early.len_kv = ptx::read_here(p.limits.len_kv);
  early.high = ptx::read_here(p.limits.high);
  return early;
}

// Tiles of late queries run first: under a causal mask they see the
// most keys. If sequences are alike, there is little to compute.
template <TileBounds kTileBounds, int kQueries, int kClusterBlocks>
__device__ __forceinline__ Task find_task(const Params& p, const Early& early) {
  const auto tile = static_cast<int>((gridDim.x - 1 - blockIdx.x) / kClusterBlocks);
  if constexpr (kTileBounds != TileBounds::checked) {
    Task task;
    task.batch = task.map_batch = early.batch;
    task.head = task.kv_head = early.head;
    if (early.heads_per_kv_head != 1) task.kv_head /= early.heads_per_kv_head;
    task.first_query = tile * kQueries;
    task.len_q = task.rows_q = p.queries;
    task.q_row = task.kv_row = 0;
    task.limits = p.limits;
    const auto tiles = static_cast<int>(static_cast<unsigned>(early.len_kv) / kBlockKv);
    task.tiles = {0, 0, tiles, tiles};
    if constexpr (kTileBounds == TileBounds::causal_only) {
      task.tiles = band_range(tiles, early.high, task.first_query,
                              min(task.first_query + kQueries, task.len_q));
    }
    return task;
  } else {
    return find_task_at<true>(p, tile * kQueries, kQueries);
  }
}

template <bool kWhole, int kQueries, int kClusterBlocks>
__device__ __forceinline__ Task find_task(const Params& p, const Early& early) {
  return find_task < kWhole ? TileBounds::none : TileBounds::checked, kQueries,
         kClusterBlocks > (p, early);
}

// Returns row `row` of a matrix's sequence and head.
__device__ inline const uint16_t* row_pointer(const RowMatrix& m, int batch, int head,
                                              int64_t row) {
  return static_cast<const uint16_t*>(m.data) + (batch * m.batch + head * m.head + row * m.row);
}

}  // namespace flashcore::cuda::attention::latency
