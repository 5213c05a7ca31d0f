// Which blocks of queries a tile of keys visits, and whose turn it is to add to a block of dQ.
// constexpr: kernels and host tests use the same functions.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

using attention::BandLimits, attention::seen_from_keys, attention::TileRange;

// The blocks of block_q queries that see keys of tile `tile`. Every block needs its mask where the
// tile has rows past the last key.
constexpr TileRange query_blocks(const BandLimits& limits, int queries, int tile, int block_q) {
  const int first = tile * kBlockKeys;
  TileRange range = attention::tile_range(seen_from_keys(limits, queries), limits.len_kv, first,
                                          first + kBlockKeys, block_q);
  if (first + kBlockKeys > limits.len_kv) range.full_begin = range.full_end = range.end;
  return range;
}

// The tiles of keys that block `block` of queries sees. They add to its dQ in this order: the first
// stores its sums, and the last has all and stores rows.
constexpr TileRange key_tiles(const BandLimits& limits, int queries, int block, int block_q) {
  return attention::tile_range(limits, queries, block * block_q, (block + 1) * block_q, kBlockKeys);
}

// Block `index` of a launch: a head of keys of some batch entry, and a tile of it. Tiles of a head
// come in ascending order, which is the order of their additions to dQ; under a causal mask the
// first is the longest.
struct KeyTile {
  int batch_head, tile;
};
constexpr KeyTile key_tile(const attention::TileOrder& order, uint32_t index) {
  const attention::TileOrder::Place place = order.at(index);
  const uint32_t tile = order.longest_first ? order.q_tiles - 1 - place.q_tile : place.q_tile;
  return {static_cast<int>(place.batch_head), static_cast<int>(tile)};
}

// One step of a tile of keys: a block of queries of one head. The producer writes it, in shared
// memory, where it takes no registers.
struct Step {
  int first;   // query of the block, from the tile's first key
  int keys;    // of the tile that exist
  int masked;  // whether some pair is not visible
  int block;   // number among the blocks of dQ of all heads
  // In turn: how many tiles have a part of dQ there before this one, the first of which stores its sums,
  // and whether it is the last, which stores rows: `queries` of them, from `row` of dQ.
  int turn, is_last, queries, batch, head, row;
  uint32_t sums_parity;  // of the barrier at which it then gets the sums of the others
};

}  // namespace flashcore::cuda::backward_sm90::throughput
