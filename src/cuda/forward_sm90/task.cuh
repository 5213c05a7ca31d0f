// From a tile's number to what the consumers must know of it.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/forward_sm90/params.hpp"
#include "cuda/forward_sm90/schedule.hpp"

namespace flashcore::cuda::forward_sm90 {

// Everything but the range of blocks.
__device__ __forceinline__ TaskInfo find_task(const Params& p, uint32_t index, int block_q) {
  const TileOrder::Place place = p.order.at(index);
  TaskInfo task;
  task.batch = static_cast<int>(place.batch_head / static_cast<uint32_t>(p.heads_q));
  task.head = static_cast<int>(place.batch_head) - task.batch * p.heads_q;
  task.first_query = static_cast<int>(place.q_tile) * block_q;
  const attention::Entry entry = attention::find_entry(p, task.batch);
  task.q_row = task.first_query + entry.q_row;
  task.kv_row = entry.kv_row;
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  if (p.cu_seqlens_q.data != nullptr) task.batch = 0;  // packed tensors have no batch
  task.limits = band_limits(p.left, p.right, entry.offset, entry.len_kv);
  return task;
}

}  // namespace flashcore::cuda::forward_sm90
