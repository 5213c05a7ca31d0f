// The query blocks that a KV tile visits, and the order of additions
// to a block of dQ. constexpr: shared by kernels and host tests.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

using attention::BandLimits, attention::seen_from_keys, attention::TileRange;

// Returns the blocks of block_q queries that see keys of tile `tile`.
// If the tile has rows past the last key, every block needs its mask.
constexpr TileRange query_blocks(const BandLimits& limits, int queries, int tile, int block_q) {
  const int first = tile * kBlockKeys;
  TileRange range = attention::tile_range(seen_from_keys(limits, queries), limits.len_kv, first,
                                          first + kBlockKeys, block_q);
  if (first + kBlockKeys > limits.len_kv) range.full_begin = range.full_end = range.end;
  return range;
}

// Returns the KV tiles that query block `block` sees. They add to its dQ in this order:
// the first one stores its sums, and the last one has the total and stores rows.
constexpr TileRange key_tiles(const BandLimits& limits, int queries, int block, int block_q) {
  return attention::tile_range(limits, queries, block * block_q, (block + 1) * block_q, kBlockKeys);
}

// Block `index` of a launch: a KV head of some sequence, and a tile of
// it. Tiles of a head come in ascending order, which is the order of their
// additions to dQ; under a causal mask, the first one is the longest.
struct KeyTile {
  int batch_head, tile;
};
constexpr KeyTile key_tile(const attention::TileOrder& order, uint32_t index) {
  const attention::TileOrder::Place place = order.at(index);
  const uint32_t tile = order.longest_first ? order.q_tiles - 1 - place.q_tile : place.q_tile;
  return {static_cast<int>(place.batch_head), static_cast<int>(tile)};
}

// One step of a KV tile: a query block of one head. The producer
// writes it to shared memory, where it takes no registers.
struct Step {
  int first;   // first query of the block, relative to the tile's first key
  int keys;    // keys of the tile that exist
  int masked;  // nonzero if some pair is not visible
  int block;   // index among the blocks of dQ of all heads
  // Deterministic: how many tiles add to this block of dQ before this one (the first of them
  // stores its sums), and whether it is the last, which stores `queries` rows, from `row` of dQ.
  int turn, is_last, queries, batch, head, row;
  uint32_t sums_parity;  // of the barrier at which the last tile then gets the other tiles' sums
};

}  // namespace flashcore::cuda::backward_sm90::throughput
