// The parameters of one launch of mla_sm90.
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <cstdint>

#include "cuda/attention/decode/params.hpp"
#include "cuda/attention/divisor.hpp"
#include "cuda/mla_sm90/latent/schedule.hpp"

namespace flashcore::cuda::mla_sm90::latent {

// Boxes of 8 rows of all columns. Coordinates: column, row, panel, head, batch or page. Of Q, a row is a head and
// a head a query.
struct Maps {
  CUtensorMap q, k;
};

// A part of a sequence's keys, for the query of a block: places [begin, end), in whole tiles but at the ends. A key's
// place is its number, or with pages that follow padding up to 7 more: boxes begin at multiples of 8 rows of a page.
struct Unit {
  int64_t in_table;  // as in CachedEntry
  int64_t tree;      // the place of the tree mask's first bit
  int batch, q_row, kv_row;
  int begin, end;
  int slot;  // of its partial result; -1: its rows are whole
};

struct Params : attention::decode::Params {
  attention::decode::TreeBits tree;
  float unit;      // of scores, in units of log2
  float natural;   // of scores, in natural units
  float headroom;  // a score may pass a row's reference by so much, 2^8 in weight
  int shares;
  int tiles, tiles_of_query;  // of rows: blocks of heads of each query
  int rows_of_lead;           // of K, in a sequence or page: a box from there on is zeros
  int join_rows;              // rows of O
  int most_units;             // of a block
  uint64_t policy;            // of L2 for keys

  Unit* units;   // [tile of rows, share, most_units]
  Parts* parts;  // [batch]
  float2*
      partial_rows;  // [slot, tile of rows, 64]: reference, sum of 2^((score - reference) * unit)
  float* partial_o;  // [slot, tile of rows, 64, 512]: not yet divided by the sums
};

}  // namespace flashcore::cuda::mla_sm90::latent
