// A block's task: a tile of queries of one sequence and head.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/forward_sm80/throughput/params.hpp"
#include "cuda/forward_sm80/throughput/splits.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

struct Task {
  int batch, head;
  int first_query;  // of the tile, counted in the sequence
  Sequence sequence;
};

// Returns tile number `index` of the launch.
__device__ inline attention::TileOrder::Place find_tile(const Params& p, uint32_t index) {
  using By = attention::TileOrder::By;
  return p.order.at(index, [&](By by, uint32_t n, uint32_t d) {
    if (by == By::tiles) return p.by_tiles.divide(n);
    if (by == By::section) return p.by_section.divide(n);
    return d == p.order.section_heads ? p.by_section_heads.divide(n) : n / d;
  });
}

// Returns the sequence and the tile in slot `slot` of a head of a
// packed batch; if there is none, q_tiles, which no sequence has.
__device__ inline attention::TileOrder::Place find_packed(const Params& p, uint32_t head,
                                                          uint32_t slot, int block_q) {
  const attention::PackedTile found = attention::find_packed_tile(
      slot, p.batch, block_q,
      [&](int b) { return attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q); });
  // Values in memory may decrease: then there is no tile, as past a sequence's end.
  const int64_t here = p.order.longest_first ? found.tiles - 1 - found.tile : found.tile;
  return {static_cast<uint32_t>(found.entry) * static_cast<uint32_t>(p.heads_q) + head,
          here < 0 || here >= p.order.q_tiles ? p.order.q_tiles : static_cast<uint32_t>(here)};
}

__device__ inline Sequence sequence_of(const attention::Entry& entry) {
  Sequence s;
  s.q_begin = entry.q_row, s.len_q = entry.len_q, s.rows_q = entry.rows_q;
  s.kv_begin = entry.kv_row, s.len_kv = entry.len_kv;
  s.offset = entry.offset;
  return s;
}
__device__ inline Sequence find_sequence(const Params& p, int b) {
  return sequence_of(attention::find_entry(p, b));
}
__device__ inline Sequence find_sequence(const PagedParams& p, int b) {
  return sequence_of(attention::find_cached_entry(p, p.cache, b).entry);
}

// Returns the split that block `index` computes.
__device__ inline int find_split(const Params& p, uint32_t index) {
  const auto heads = static_cast<uint32_t>(p.heads_q / p.heads_kv);
  return static_cast<int>(index / heads % static_cast<uint32_t>(p.splits));
}

// Returns the KV tiles per split of the sequence.
__device__ inline int split_tiles(const Task& task, int block_kv) {
  return static_cast<int>(split_keys(task.sequence.len_kv)) / block_kv;
}

// With splits, the splits of a tile and its group of heads are consecutive:
// blocks that run at the same time share keys and values.
template <bool kSplits, class P>
__device__ inline Task find_task(const P& p, uint32_t index, int block_q) {
  attention::TileOrder::Place place;
  if (kSplits && p.splits > 1) {
    const auto heads = static_cast<uint32_t>(p.heads_q / p.heads_kv);
    const uint32_t within = index % heads;
    const uint32_t section = index / heads / static_cast<uint32_t>(p.splits);
    const uint32_t tiles =
        p.packed_slots > 0 ? static_cast<uint32_t>(p.packed_slots) : p.order.q_tiles;
    place = {section / tiles * heads + within, section % tiles};
    if (p.packed_slots > 0) place = find_packed(p, place.batch_head, place.q_tile, block_q);
  } else if (p.packed_slots > 0) {
    const auto slots = static_cast<uint32_t>(p.packed_slots);
    place = find_packed(p, index / slots, index % slots, block_q);
  } else {
    place = find_tile(p, index);
  }
  Task task;
  task.batch = static_cast<int>(p.by_heads_q.divide(place.batch_head));
  task.head = static_cast<int>(place.batch_head) - task.batch * p.heads_q;
  task.first_query = static_cast<int>(place.q_tile) * block_q;
  task.sequence = find_sequence(p, task.batch);
  return task;
}

// Returns the KV head of a query head.
__device__ inline int kv_head_of(const Params& p, int head) {
  return static_cast<int>(p.by_group.divide(static_cast<uint32_t>(head)));
}

// Returns a query's row in the partial results: [batch, head,
// query], or [head, row of the tensor] in a packed batch.
__device__ inline int64_t partial_row(const Params& p, const Task& task, int row) {
  if (p.cu_seqlens_q.data != nullptr) {
    return int64_t{task.head} * p.total_q + task.sequence.q_begin + row;
  }
  return (int64_t{task.batch} * p.heads_q + task.head) * p.seqlen_q + row;
}

// Returns row `row` of a sequence and head; in a packed tensor, counted from its first row.
template <int kElementBytes>
__device__ inline const unsigned char* row_pointer(const attention::RowMatrix& m, int batch,
                                                   int head, int64_t row) {
  return static_cast<const unsigned char*>(m.data) +
         kElementBytes * (batch * m.batch + head * m.head + row * m.row);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
