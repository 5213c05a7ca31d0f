// What one block computes: a tile of queries of one batch entry and head.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/forward_sm80/throughput/params.hpp"
#include "cuda/forward_sm80/throughput/splits.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

struct Task {
  int batch, head;
  int first_query;  // of the tile, counted in the entry
  Sequence sequence;
};

// Number `index` of the launch's query tiles. Consecutive blocks share the keys and values of a
// head; with a causal mask the longest tiles of a section of heads go first.
__device__ inline void find_tile(const Params& p, uint32_t index, uint32_t& batch_head,
                                 uint32_t& tile) {
  const auto tiles = static_cast<uint32_t>(p.q_tiles);
  if (!p.longest_first) {
    batch_head = p.by_q_tiles.divide(index);
    tile = index - batch_head * tiles;
    return;
  }
  const auto heads = static_cast<uint32_t>(p.section_heads);
  const uint32_t section = p.by_section.divide(index);
  const uint32_t within = index - section * heads * tiles;
  const uint32_t all = static_cast<uint32_t>(p.batch) * static_cast<uint32_t>(p.heads_q);
  const uint32_t here = min(heads, all - section * heads);
  const uint32_t rank = here == heads ? p.by_section_heads.divide(within) : within / here;
  batch_head = section * heads + (within - rank * here);
  tile = tiles - 1 - rank;
}

// The same for a packed batch: its entry, and which tile of it.
__device__ inline void find_packed(const Params& p, uint32_t head, uint32_t slot, int block_q,
                                   uint32_t& batch_head, uint32_t& tile) {
  const attention::PackedTile found = attention::find_packed_tile(
      slot, p.batch, block_q,
      [&](int64_t b) { return int64_t{attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q)}; });
  batch_head = static_cast<uint32_t>(found.entry) * static_cast<uint32_t>(p.heads_q) + head;
  // What is in memory need not increase: no tile then, like those past an entry's end.
  const int64_t here = p.longest_first ? found.tiles - 1 - found.tile : found.tile;
  tile = here < 0 || here >= p.q_tiles ? static_cast<uint32_t>(p.q_tiles)
                                       : static_cast<uint32_t>(here);
}

__device__ inline Sequence find_sequence(const Params& p, int b) {
  const attention::Entry entry = attention::find_entry(p, b);
  Sequence s;
  s.q_begin = entry.q_row, s.len_q = entry.len_q, s.rows_q = entry.rows_q;
  s.kv_begin = entry.kv_row, s.len_kv = entry.len_kv;
  s.offset = entry.offset;
  return s;
}

// Which split of the keys is the share of block `index`.
__device__ inline int find_split(const Params& p, uint32_t index) {
  const auto heads = static_cast<uint32_t>(p.heads_q / p.heads_kv);
  return static_cast<int>(index / heads % static_cast<uint32_t>(p.splits));
}

// Tiles of keys of each of the entry's splits.
__device__ inline int split_tiles(const Task& task, int block_kv) {
  return static_cast<int>(split_keys(task.sequence.len_kv)) / block_kv;
}

// With splits, those of a tile and its heads of one group follow each other: what runs at once
// shares keys and values.
template <bool kSplits>
__device__ inline Task find_task(const Params& p, uint32_t index, int block_q) {
  uint32_t batch_head, tile;
  if (kSplits && p.splits > 1) {
    const auto heads = static_cast<uint32_t>(p.heads_q / p.heads_kv);
    const uint32_t within = index % heads;
    const uint32_t section = index / heads / static_cast<uint32_t>(p.splits);
    const auto tiles = static_cast<uint32_t>(p.packed_slots > 0 ? p.packed_slots : p.q_tiles);
    tile = section % tiles;
    batch_head = section / tiles * heads + within;
    if (p.packed_slots > 0) find_packed(p, batch_head, tile, block_q, batch_head, tile);
  } else if (p.packed_slots > 0) {
    const auto slots = static_cast<uint32_t>(p.packed_slots);
    find_packed(p, index / slots, index % slots, block_q, batch_head, tile);
  } else {
    find_tile(p, index, batch_head, tile);
  }
  Task task;
  task.batch = static_cast<int>(p.by_heads_q.divide(batch_head));
  task.head = static_cast<int>(batch_head) - task.batch * p.heads_q;
  task.first_query = static_cast<int>(tile) * block_q;
  task.sequence = find_sequence(p, task.batch);
  return task;
}

// The KV head of a query head.
__device__ inline int kv_head_of(const Params& p, int head) {
  return static_cast<int>(p.by_group.divide(static_cast<uint32_t>(head)));
}

// Number of a query among the rows of partial results: [batch, head, query], in a packed batch
// [head, row of the tensor].
__device__ inline int64_t partial_row(const Params& p, const Task& task, int row) {
  if (p.cu_seqlens_q.data != nullptr) {
    return int64_t{task.head} * p.total_q + task.sequence.q_begin + row;
  }
  return (int64_t{task.batch} * p.heads_q + task.head) * p.seqlen_q + row;
}

// Row `row` of a matrix's batch entry and head, in a packed tensor counted from its first row.
template <int kElementBytes>
__device__ inline const unsigned char* row_pointer(const attention::RowMatrix& m, int batch,
                                                   int head, int64_t row) {
  return static_cast<const unsigned char*>(m.data) +
         kElementBytes * (batch * m.batch + head * m.head + row * m.row);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
