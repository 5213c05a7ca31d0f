// The task of a tile if sequences differ. The first launch finds it: in a packed batch, this
// takes dependent loads, one per step of a bisection, which would delay a block's start.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

constexpr EntryTask entry_task(const OptionParams& p, uint32_t index, int block_q) {
  const KeyTile place = key_tile(p.order, index);
  const EntryBlock tile = key_block(p, place.batch_head, place.tile, kBlockKeys);
  EntryTask task{};
  task.rows = entry_rows(p, p.options.band, tile.entry, block_q);
  task.batch = task.rows.batch;
  task.kv_head = tile.head;
  task.tile = tile.block;
  if (tile.block >= 0) {
    task.range = query_blocks(task.rows.limits, task.rows.len_q, tile.block, block_q);
  }
  task.steps = task.range.empty() ? 0 : task.range.size() * p.group;
  return task;
}

}  // namespace flashcore::cuda::backward_sm90::throughput
