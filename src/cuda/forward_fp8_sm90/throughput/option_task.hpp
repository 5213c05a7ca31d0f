// A block's description of a query tile, for instances with options.
#pragma once

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/forward_fp8_sm90/throughput/option_params.hpp"
#include "cuda/forward_fp8_sm90/throughput/task.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

struct OptionTask : Task {
  int q_row, kv_row;  // rows of query 0 and key 0 in packed tensors
  int v_block;        // V^T's first block of keys, among those of the head
  int column;         // the first column of V

  constexpr bool exists() const { return first_query < rows_q; }  // a packed slot may be empty
};

// Returns where a packed sequence's rows begin, for any contents of memory.
constexpr int packed_row(const attention::EntryVector& cu_seqlens, int entry, int total) {
  return attention::clamped(cu_seqlens.at(entry), 0, total);
}

// Fills in everything except the ranges of blocks, for tile `index` of block_q queries and `columns` of V.
constexpr OptionTask find_option_tile(const OptionParams& p, uint32_t index, int block_q,
                                      int columns) {
  const auto parts = static_cast<uint32_t>(p.parts);
  const uint32_t rank = attention::quotient(index, parts);
  OptionTask task{};
  task.column = static_cast<int>(index - rank * parts) * columns;
  if (!p.packed) {
    static_cast<Task&>(task) = find_tile(p, rank, block_q);
    return task;
  }
  const attention::TileOrder::Place place = p.order.at(rank);  // a slot of one head
  const attention::PackedTile tile = attention::find_packed_tile(
      place.q_tile, p.batch, block_q,
      [&](int entry) { return packed_row(p.cu_seqlens_q, entry, p.total_q); });
  task.batch = tile.entry;
  task.head = static_cast<int>(place.batch_head);
  task.kv_head = task.head / static_cast<int>(p.heads_per_kv_head);
  const attention::Entry entry = attention::find_entry(p, task.batch);
  task.len_q = entry.len_q;
  task.rows_q = entry.rows_q;
  task.q_row = entry.q_row;
  task.kv_row = entry.kv_row;
  task.limits = attention::band_limits(p.left, p.right, entry.offset, entry.len_kv);
  task.v_block = static_cast<int>(attention::first_slot(entry.kv_row, task.batch, kBlockKv));
  // There is no tile past the sequence's rows, for any tile number.
  const int64_t first = tile.tile * block_q;
  task.first_query = first >= 0 && first < task.rows_q ? static_cast<int>(first) : task.rows_q;
  return task;
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
