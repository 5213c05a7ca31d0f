// What a block knows of a tile of queries, worked out by one producer thread with few registers for
// the whole block: attention/scheduler.hpp and attention/kv_range.hpp.
//
// Blocks of keys are taken from the right: the masked end comes first, then those without a mask.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

using attention::BandLimits, attention::TileOrder, attention::TileRange;

inline constexpr int kMostConsumers = 3;

// Tiles of an entry with so many rows.
constexpr uint32_t tiles_of(int rows, int block_q) {
  return (static_cast<uint32_t>(rows) + static_cast<uint32_t>(block_q) - 1) /
         static_cast<uint32_t>(block_q);
}

struct TaskInfo {
  int batch, head;  // batch: 0 in packed tensors
  int kv_head;      // whose keys and values the head reads
  int first_query;  // of the tile, in its entry
  int q_row;        // of the tile's first row in the tensors: first_query, or that of a packed one
  int kv_row;       // of key 0, likewise
  int len_q;        // queries in use
  int rows_q;       // rows of O and LSE that belong to the entry, at least len_q
  int begin, end;   // blocks of keys that are copied
  BandLimits limits;
  TileRange seen[kMostConsumers];  // blocks that each consumer's rows see

  static constexpr int kNoMore = -1;  // as rows_q: there are no more tiles
  constexpr bool is_tile() const { return rows_q != kNoMore; }
};

// Besides it, where keys and values lie in pages.
struct TaskPages {
  int entry;               // of the batch
  int first_key, end_key;  // that some query of the tile sees: no other key's page is looked up
};
struct NoTaskPages {};

}  // namespace flashcore::cuda::forward_sm90::throughput
