// The resource page of backward_sm90_wide: tiles, registers and shared memory.
//
// At head dimension 256 the sums of dK and dV of 64 keys take half of an SM's registers, and the
// part of dQ that a block of so few keys has is as large as what it reads: added to memory, it is
// more than L2 takes. So dQ has blocks of its own, which compute S and dP again: seven products
// instead of five, and nothing is added in memory.
//
//   keys      a block: 64 keys. Consumer 0: S^T, P^T, dV; consumer 1: dP^T, dS^T, dK
//             | K | V | Q, two stages | dO, two stages | P on its way to consumer 1, two | notes |
//   queries   a block: 128 queries, 64 for each consumer: S, dP, dQ
//             | Q | dO | K, two stages | V |
//
// P and dS are left operands from registers everywhere.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/scheduler.hpp"
#include "cuda/attention/sides.hpp"

namespace flashcore::cuda::backward_sm90::wide {

inline constexpr int kHeadDim = 256;
inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kConsumers = 2;  // warpgroups
inline constexpr int kConsumerWarps = kConsumers * kWarpgroupWarps;
inline constexpr int kThreads = kWarpgroupThreads * (kConsumers + 1);
inline constexpr int kRows = 64;  // of a tile: what one wgmma computes, and a step
inline constexpr int kBlockQ = kRows * kConsumers;
inline constexpr int kStages = 2;
inline constexpr int kPanelColumns = 64;  // 128 bytes, the widest swizzle
inline constexpr int kPieces = 2;         // of the sums' columns: a product has 128
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;
inline constexpr int kTileBytes = 2 * kRows * kHeadDim;
inline constexpr int kExchangeBytes = 2 * kRows * kRows;
inline constexpr int kSharedMemory = 227 * 1024;  // that a block may have
inline constexpr int kSharedOther = 2048;         // at most: notes and barriers
inline constexpr int kKeysBytes = 6 * kTileBytes + kStages * kExchangeBytes + kSharedOther;
inline constexpr int kQueriesBytes = 7 * kTileBytes + kSharedOther;
inline constexpr int kSharedBytes = kKeysBytes > kQueriesBytes ? kKeysBytes : kQueriesBytes;
static_assert(kSharedBytes <= kSharedMemory);
static_assert(kWarpgroupThreads * (kProducerRegisters + kConsumers * kConsumerRegisters) <=
              65536 / kThreads / 8 * 8 * kThreads);
// What a consumer thread holds: sums, two tiles of scores, and a left operand.
inline constexpr int kHeldRegisters = kHeadDim / 2 + 2 * (kRows / 2) + kRows / 4;
static_assert(kHeldRegisters + 24 <= kConsumerRegisters);

using attention::BandLimits, attention::seen_from_keys, attention::TileRange;

// The steps of 64 queries that see keys of tile `tile`, of 64. All need their mask where the tile
// has rows past the last key.
constexpr TileRange query_steps(const BandLimits& limits, int queries, int tile) {
  const int first = tile * kRows;
  TileRange range = attention::tile_range(seen_from_keys(limits, queries), limits.len_kv, first,
                                          first + kRows, kRows);
  if (first + kRows > limits.len_kv) range.full_begin = range.full_end = range.end;
  return range;
}

// The tiles of 64 keys that block `block` of queries sees.
constexpr TileRange key_tiles(const BandLimits& limits, int queries, int block) {
  return attention::tile_range(limits, queries, block * kBlockQ, (block + 1) * kBlockQ, kRows);
}

// Block `index` of those for keys; under a causal mask the first tile of a head is the longest.
struct KeyTile {
  int batch_head, tile;
};
constexpr KeyTile key_tile(const attention::TileOrder& order, uint32_t index) {
  const attention::TileOrder::Place place = order.at(index);
  const uint32_t tile = order.longest_first ? order.q_tiles - 1 - place.q_tile : place.q_tile;
  return {static_cast<int>(place.batch_head), static_cast<int>(tile)};
}

}  // namespace flashcore::cuda::backward_sm90::wide
