// The task of a block: a tile of keys.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

// With options, the first launch calls this for all tiles: in a packed batch, it takes dependent
// loads, one per step of a bisection, which would delay a block's start.
template <class P>
constexpr auto make_task(const P& p, uint32_t index, int block_q) {
  const KeyTile place = key_tile(p.order, index);
  const EntryBlock tile = key_block(p, place.batch_head, place.tile, kBlockKeys);
  const EntryRows rows = entry_rows(p, tile.entry, block_q);
  std::conditional_t<kHasOptions<P>, EntryTask, Task> task;
  if constexpr (kHasOptions<P>) task.rows = rows;
  task.batch = rows.batch;
  task.kv_head = tile.head;
  task.tile = tile.block;
  if (!kHasOptions<P> || tile.block >= 0) {
    // Parameters that all tasks share are read where they are used.
    const BandLimits& limits = kHasOptions<P> ? rows.limits : p.limits;
    task.range = query_blocks(limits, rows.len_q, tile.block, block_q);
  }
  task.steps = task.range.empty() ? 0 : task.range.size() * p.group;
  return task;
}

// The rows of a task's sequence.
constexpr EntryRows rows_of(const Params& p, const Task& task) {
  return entry_rows(p, task.batch, 0);
}
constexpr EntryRows rows_of(const Params& /*p*/, const EntryTask& task) { return task.rows; }

}  // namespace flashcore::cuda::backward_sm90::throughput
