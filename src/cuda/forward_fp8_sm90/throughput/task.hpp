// The KV blocks of a query tile.
#pragma once

#include "cuda/attention/fp8/task.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// Finds the KV blocks that a tile's queries see.
constexpr void find_ranges(Task& task, int consumers, int block_kv) {
  const int block_q = kWarpgroupRows * consumers;
  const int first = task.first_query;
  const attention::TileRange all =
      attention::tile_range(task.limits, task.len_q, first, first + block_q, block_kv);
  task.begin = all.begin;
  task.end = all.end;
  for (int i = 0; i < consumers; ++i) {
    const int row = first + i * kWarpgroupRows;
    task.seen[i] =
        attention::tile_range(task.limits, task.len_q, row, row + kWarpgroupRows, block_kv);
  }
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
