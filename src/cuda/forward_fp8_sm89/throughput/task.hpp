// A block's task: a tile of queries of one sequence and head. constexpr: shared by kernels and host tests.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/task.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

struct Task : attention::fp8::OptionTask {
  attention::TileRange tiles;  // KV tiles that some row of the block sees
};

constexpr Task find_task(const Params& p, uint32_t index, int block_kv) {
  Task task{attention::fp8::find_tile(p, index, kBlockQ, kLargestHeadDim), {}};
  task.tiles = attention::tile_range(task.limits, task.len_q, task.first_query,
                                     task.first_query + kBlockQ, block_kv);
  return task;
}

// Keys [begin, end) that a query of the sequence sees; none if end is not past begin.
constexpr attention::ColumnRange seen_keys(const Task& task, int query) {
  const attention::ColumnRange seen = attention::visible_columns(task.limits, query, 0);
  return {seen.begin > 0 ? seen.begin : 0, query < task.len_q ? seen.end : 0};
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
