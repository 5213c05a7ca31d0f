// A block's description of a query tile, computed for the whole block by one producer
// thread with few registers: attention/scheduler.hpp and attention/kv_range.hpp.
//
// KV blocks are visited from the right: the masked end first, then blocks without a mask.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

using attention::BandLimits, attention::TileOrder, attention::TileRange;

inline constexpr int kMostConsumers = 3;

// Returns the tiles of a sequence with `rows` rows.
constexpr uint32_t tiles_of(int rows, int block_q) {
  return (static_cast<uint32_t>(rows) + static_cast<uint32_t>(block_q) - 1) /
         static_cast<uint32_t>(block_q);
}

struct TaskInfo {
  int batch, head;  // batch: 0 in packed tensors
  int kv_head;      // the KV head that the head reads
  int first_query;  // of the tile, in its sequence
  int q_row;        // of the tile's first row in the tensors: first_query, or its packed row
  int kv_row;       // of key 0, likewise
  int len_q;        // queries in use
  int rows_q;       // rows of O and LSE that belong to the sequence, at least len_q
  int begin, end;   // KV blocks that are copied
  BandLimits limits;
  TileRange seen[kMostConsumers];  // KV blocks that each consumer's rows see

  static constexpr int kNoMore = -1;  // in rows_q: there are no more tiles
  constexpr bool is_tile() const { return rows_q != kNoMore; }
};

// In addition, for paged keys and values.
struct TaskPages {
  int in_table;            // index of the sequence's first page in the table
  int first_key, end_key;  // seen by some query of the tile: no other key's page is looked up
};
struct NoTaskPages {};

// In addition, with options of pairs. Strides and places are in elements.
struct TaskOptions {
  int entry;                  // index of the sequence
  int bias_entry, bias_head;  // coordinates in the map of biases
  float slope;                // of ALiBi; 0: none
  float alibi_step;       // per key of distance from the diagonal, in units of scores; 0: no ALiBi
  int64_t diagonal;       // key - query on the diagonal
  const uint16_t* bias;   // of the sequence and head, at query 0 and key 0
  const uint32_t* words;  // likewise of the mask; null: no mask
};
struct NoTaskOptions {};

// What the last coordinate of a map of K or V in boxes counts for each page and head.
struct BoxSteps {
  int page, head;
};

}  // namespace flashcore::cuda::forward_sm90::throughput
