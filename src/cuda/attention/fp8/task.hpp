// A block's description of a query tile, computed by one thread for the whole block. constexpr: shared by
// kernels and host tests.
#pragma once

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/fp8/params.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::attention::fp8 {

inline constexpr int kMostConsumers = 3;

struct Task {
  int batch, head, kv_head;
  int first_query;  // of the tile
  int len_q;        // queries in use
  int rows_q;       // rows of O and LSE, at least len_q
  int begin, end;   // KV blocks that are copied
  BandLimits limits;
  TileRange seen[kMostConsumers];  // KV blocks that each consumer's rows see

  static constexpr int kNoMore = -1;  // in rows_q: there are no more tiles
  constexpr bool is_tile() const { return rows_q != kNoMore; }
  constexpr bool has_few_keys(int block_kv) const { return (end - begin) * block_kv <= kFewKeys; }
};

// With options.
struct OptionTask : Task {
  int q_row, kv_row;  // rows of query 0 and key 0 in packed tensors
  int v_block;        // V^T's first block of keys, among the head's
  int column;         // the first column of V

  constexpr bool exists() const { return first_query < rows_q; }  // a packed slot may be empty
};

// Returns where a packed sequence's rows begin, for any contents of memory.
constexpr int packed_row(const EntryVector& cu_seqlens, int entry, int total) {
  return clamped(cu_seqlens.at(entry), 0, total);
}

// Fills in everything except the ranges of blocks, for tile `index` of block_q queries and `columns` of V.
constexpr Task find_tile(const Params& p, uint32_t index, int block_q, int /*columns*/) {
  const TileOrder::Place place = p.order.at(index);
  const uint32_t batch = quotient(place.batch_head, p.heads);
  Task task{};
  task.batch = static_cast<int>(batch);
  task.head = static_cast<int>(place.batch_head - batch * p.heads);
  task.kv_head = task.head;
  if (p.heads_per_kv_head != 1) task.kv_head = task.head / static_cast<int>(p.heads_per_kv_head);
  task.first_query = static_cast<int>(place.q_tile) * block_q;
  task.len_q = task.rows_q = p.seqlen_q;
  task.limits = p.limits;
  if (p.varies) {
    const Entry entry = find_entry(p, task.batch);
    task.len_q = entry.len_q;
    task.rows_q = entry.rows_q;
    task.limits = band_limits(p.left, p.right, entry.offset, entry.len_kv);
  }
  return task;
}

constexpr OptionTask find_tile(const OptionParams& p, uint32_t index, int block_q, int columns) {
  const auto parts = static_cast<uint32_t>(p.parts);
  const uint32_t rank = quotient(index, parts);
  OptionTask task{};
  task.column = static_cast<int>(index - rank * parts) * columns;
  if (!p.packed) {
    static_cast<Task&>(task) = find_tile(static_cast<const Params&>(p), rank, block_q, columns);
    return task;
  }
  const TileOrder::Place place = p.order.at(rank);  // a slot of one head
  const PackedTile tile = find_packed_tile(place.q_tile, p.batch, block_q, [&](int entry) {
    return packed_row(p.cu_seqlens_q, entry, p.total_q);
  });
  task.batch = tile.entry;
  task.head = static_cast<int>(place.batch_head);
  task.kv_head = task.head / static_cast<int>(p.heads_per_kv_head);
  const Entry entry = find_entry(p, task.batch);
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  task.q_row = entry.q_row;
  task.kv_row = entry.kv_row;
  task.limits = band_limits(p.left, p.right, entry.offset, entry.len_kv);
  task.v_block = static_cast<int>(first_slot(entry.kv_row, task.batch, kBlockKv));
  // There is no tile past the sequence's rows, for any tile number.
  const int64_t first = tile.tile * block_q;
  task.first_query = first >= 0 && first < task.rows_q ? static_cast<int>(first) : task.rows_q;
  return task;
}

}  // namespace flashcore::cuda::attention::fp8
