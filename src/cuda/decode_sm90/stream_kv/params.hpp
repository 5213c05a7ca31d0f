// The parameters of one launch of decode_sm90.
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include "cuda/attention/decode/params.hpp"
#include "cuda/attention/divisor.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

struct Maps {
  CUtensorMap k, v;
};

struct Params : attention::decode::Params {
  int boxes;  // of the maps, per tile of K, and per tile of V; 0: tiles are copied row by row
  int box_bytes, box_columns;  // of one box
  int key_alignment;  // a tile begins at a multiple of this many rows of a cache; a power of two
  attention::Divisor by_shares, by_heads;  // heads: KV heads
  attention::Divisor by_rows;              // rows per KV head: rows_of_head
  int shares, rows_of_head;
  int own_parts;  // per item, at most; 0: not batch invariant
  int item_end;   // the cost of an item's end
  bool plain;     // sequences are as find_cached_entry<true> requires
  bool equal;     // all sequences are `same`, and more than kKnownEntries
  KnownEntry same;
  int entry_cost;  // then: of a sequence's items
  attention::Divisor by_entry_cost;
  attention::decode::TreeBits tree;

  float2* partial_rows;  // [slot, tile of rows, row]: largest score, sum of e^(score - largest)
  float* partial_o;      // [slot, tile of rows, row, head_dim_v]: not yet divided by the sums
  int tiles;             // of rows, at most
  int tile_rows;         // rows of a tile that have partial results
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv
