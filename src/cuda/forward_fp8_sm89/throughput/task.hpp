// A block's task: a tile of queries of one sequence
// and head. constexpr: shared by kernels and host tests.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/scheduler.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

struct Task {
  int batch, head, kv_head;
  int first_query;    // of the tile, counted in the sequence
  int len_q;          // queries in use
  int rows_q;         // rows of O and LSE, at least len_q
  int q_row, kv_row;  // rows of query 0 and key 0 in packed tensors
  attention::BandLimits limits;
  attention::TileRange tiles;  // KV tiles that some row of the block sees
};

// Returns the sequence and the tile in slot `slot` of a head of a
// packed batch; if there is none, q_tiles, which no sequence has.
constexpr attention::TileOrder::Place find_packed(const Params& p, uint32_t head, uint32_t slot) {
  const attention::PackedTile found = attention::find_packed_tile(
      slot, p.batch, kBlockQ,
      [&](int b) { return attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q); });
  // Values in memory may decrease: then there is no tile, as past a sequence's end.
  const int64_t here = p.order.longest_first ? found.tiles - 1 - found.tile : found.tile;
  return {static_cast<uint32_t>(found.entry) * p.heads + head,
          here < 0 || here >= p.order.q_tiles ? p.order.q_tiles : static_cast<uint32_t>(here)};
}

constexpr Task find_task(const Params& p, uint32_t index, int block_kv) {
  attention::TileOrder::Place place{};
  if (p.packed_slots > 0) {
    const auto slots = static_cast<uint32_t>(p.packed_slots);
    place = find_packed(p, index / slots, index % slots);
  } else {
    place = p.order.at(index);
  }
  const uint32_t batch = attention::quotient(place.batch_head, p.heads);
  const uint32_t head = place.batch_head - batch * p.heads;
  Task task{};
  task.batch = static_cast<int>(batch);
  task.head = static_cast<int>(head);
  task.kv_head = static_cast<int>(head / p.heads_per_kv_head);
  task.first_query = static_cast<int>(place.q_tile) * kBlockQ;
  const attention::Entry entry = attention::find_entry(p, task.batch);
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  task.q_row = entry.q_row;
  task.kv_row = entry.kv_row;
  task.limits = attention::band_limits(p.left, p.right, entry.offset, entry.len_kv);
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
