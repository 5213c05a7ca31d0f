// Everything that one launch of decode_sm90 is told.
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include "cuda/attention/decode/params.hpp"
#include "cuda/attention/divisor.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

struct Maps {
  CUtensorMap k, v;
};

struct Params : attention::decode::Params {
  int boxes;  // of the maps, that a tile of K has, and one of V; 0: tiles are copied row by row
  int box_bytes, box_columns;  // of one
  int key_alignment;  // a tile begins at a multiple of it, of a cache's rows; a power of two
  attention::Divisor by_shares, by_heads;  // of keys
  attention::Divisor by_rows;              // of a key/value head: rows_of_head
  int shares, rows_of_head;
  int own_parts;  // of an item, at most; 0: not batch invariant
  int item_end;   // places in the line that an item's end takes
  bool plain;     // entries are as find_cached_entry<true> wants them
  attention::decode::TreeBits tree;

  float2* partial_rows;  // [slot, tile of rows, row]: largest score, sum of e^(score - largest)
  float* partial_o;      // [slot, tile of rows, row, head_dim_v]: not yet divided by the sums
  int tiles;             // of rows, at most
  int tile_rows;         // of a tile: rows that have partial results
};

}  // namespace flashcore::cuda::decode_sm90::stream_kv
