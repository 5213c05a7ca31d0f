// From a tile's number to what the consumers must know of it.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/forward_sm90/params.hpp"
#include "cuda/forward_sm90/schedule.hpp"

namespace flashcore::cuda::forward_sm90 {

// Rows, lengths and diagonal of an entry that is not like the others.
__device__ inline void find_own_entry(const Params& p, TaskInfo& task) {
  const attention::Entry entry = attention::find_entry(p, task.batch);
  task.q_row += entry.q_row;
  task.kv_row = entry.kv_row;
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  if (p.cu_seqlens_q.data != nullptr) task.batch = 0;  // packed tensors have no batch
  task.limits = band_limits(p.left, p.right, entry.offset, entry.len_kv);
}

// Everything but the ranges of blocks.
__device__ __forceinline__ TaskInfo find_task(const Params& p, uint32_t index, int block_q) {
  const TileOrder::Place place = p.order.at(index);
  const uint32_t batch = quotient(place.batch_head, p.heads);
  TaskInfo task;
  task.batch = static_cast<int>(batch);
  task.head = static_cast<int>(place.batch_head - batch * p.heads);
  task.kv_head = task.head;
  if (p.heads_per_kv_head != 1) task.kv_head = task.head / static_cast<int>(p.heads_per_kv_head);
  task.first_query = task.q_row = static_cast<int>(place.q_tile) * block_q;
  task.kv_row = 0;
  task.len_q = task.rows_q = p.queries;
  task.limits = p.limits;
  if (p.varies) find_own_entry(p, task);
  return task;
}

}  // namespace flashcore::cuda::forward_sm90
