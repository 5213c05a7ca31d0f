// Turns a tile's position into the task for the consumers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/entry.hpp"
#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// A sequence's own lengths and rows, if sequences differ.
struct OwnEntry {
  int q_row, kv_row;  // rows of query 0 and key 0 in packed tensors
  int len_q, rows_q;
  BandLimits limits;
};

__device__ __forceinline__ OwnEntry find_own_entry(const Params& p, int batch) {
  const attention::Entry entry = attention::find_entry(p, batch);
  return {entry.q_row, entry.kv_row, entry.len_q, entry.rows_q,
          attention::band_limits(p.left, p.right, entry.offset, entry.len_kv)};
}
__device__ __forceinline__ OwnEntry find_own_entry(const PagedParams& p, int batch) {
  const attention::Entry entry = attention::find_cached_entry(p, p.cache, batch).entry;
  return {entry.q_row, entry.kv_row, entry.len_q, entry.rows_q,
          attention::band_limits(p.left, p.right, entry.offset, entry.len_kv)};
}

// Returns where a sequence's pages are listed: see CachedEntry. A table has less than 2^31 numbers.
__device__ __forceinline__ int find_table(const PagedParams& p, int entry) {
  return static_cast<int>(attention::find_cached_entry(p, p.cache, entry).in_table);
}

// Completes a task's options; the sequence is there.
__device__ __forceinline__ void find_options(const OptionParams& p, const TaskInfo& task,
                                             TaskOptions& options) {
  const int64_t entry = options.entry, head = task.head;
  options.diagonal = attention::find_entry(p, options.entry).offset;
  options.slope = 0;
  if (const attention::HeadVector& slopes = p.alibi_slopes; slopes.data != nullptr) {
    options.slope = __ldg(slopes.data + entry * slopes.batch + head * slopes.head);
  }
  options.alibi_step = -p.to_scores * options.slope;
  options.bias_entry = p.bias.batch == 0 ? 0 : options.entry;
  options.bias_head = p.bias.head == 0 ? 0 : task.head;
  options.bias = p.bias.data + entry * p.bias.batch + head * p.bias.head;
  options.words = p.mask.words + entry * p.mask.batch + head * p.mask.head;
}

// Fills in everything except the ranges of blocks.
__device__ __forceinline__ TaskInfo make_task(const Params& p, uint32_t batch, uint32_t head,
                                              uint32_t q_tile, int block_q) {
  TaskInfo task;
  task.batch = static_cast<int>(batch);
  task.head = static_cast<int>(head);
  task.kv_head = task.head;
  if (p.heads_per_kv_head != 1) task.kv_head = task.head / static_cast<int>(p.heads_per_kv_head);
  task.first_query = task.q_row = static_cast<int>(q_tile) * block_q;
  task.kv_row = 0;
  task.len_q = task.rows_q = p.queries;
  task.limits = p.limits;
  return task;
}
__device__ __forceinline__ void set_entry(TaskInfo& task, const OwnEntry& entry) {
  task.q_row += entry.q_row;
  task.kv_row = entry.kv_row;
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  task.limits = entry.limits;
}

// Returns tile `index` of a batch whose sequences have equally many tiles.
template <class P>
__device__ __forceinline__ TaskInfo find_task(const P& p, uint32_t index, int block_q) {
  const TileOrder::Place place = p.order.at(index);
  uint32_t batch = attention::quotient(place.batch_head, p.heads);
  uint32_t head = place.batch_head - batch * p.heads;
  if constexpr (std::is_same_v<P, OptionParams>) {
    if (p.batch_inside) {
      head = attention::quotient(place.batch_head, static_cast<uint32_t>(p.batch));
      batch = place.batch_head - head * static_cast<uint32_t>(p.batch);
    }
  }
  TaskInfo task = make_task(p, batch, head, place.q_tile, block_q);
  if (p.varies) set_entry(task, find_own_entry(p, task.batch));
  return task;
}

// Returns tile `index` of a sequence of a packed batch, in the order of a batch of that sequence only.
__device__ __forceinline__ TaskInfo find_packed_task(const Params& p, const OwnEntry& entry,
                                                     uint32_t index, int block_q) {
  const uint32_t q_tiles = tiles_of(entry.rows_q, block_q);
  const TileOrder order{
      .batch_heads = p.heads,
      .q_tiles = q_tiles,
      .section_heads = attention::section_heads(
          p.section_rows, static_cast<uint32_t>(entry.limits.len_kv), p.heads_per_kv_head, p.heads),
      .longest_first = p.order.longest_first && q_tiles > 1};
  const TileOrder::Place place = order.at(index);
  // Packed tensors have no batch dimension.
  TaskInfo task = make_task(p, 0, place.batch_head, place.q_tile, block_q);
  set_entry(task, entry);
  return task;
}

}  // namespace flashcore::cuda::forward_sm90::throughput
