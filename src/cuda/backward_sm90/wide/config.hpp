// The resource page of backward_sm90:wide: tiles, registers and shared memory.
//
// At head dimension 256, the sums of dK and dV of 64 keys take half of one SM's
// registers. The part of dQ that a block of so few keys computes is as large as its
// inputs: adding it in memory exceeds L2's throughput. So dQ has blocks of its own,
// which recompute S and dP: seven products instead of five, but no additions in memory.
//
//   keys      a block: 64 keys. Consumer 0: S^T, P^T, dV; consumer 1: dP^T, dS^T, dK
//             | K | V | Q, two stages | dO, two stages | P for consumer 1, two | row statistics |
//   queries   a block: 128 queries, 64 for each consumer: S, dP, dQ
//             | Q | dO | K, two stages | V |
//
// P and dS are always left operands from registers.
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
inline constexpr int kRows = 64;  // of a tile: the rows of one wgmma, and of a step
inline constexpr int kBlockQ = kRows * kConsumers;
inline constexpr int kStages = 2;
inline constexpr int kPanelColumns = 64;  // 128 bytes, the widest swizzle
inline constexpr int kPieces = 2;         // of the sums' columns: a product has 128
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;
inline constexpr int kTileBytes = 2 * kRows * kHeadDim;
inline constexpr int kExchangeBytes = 2 * kRows * kRows;
inline constexpr int kSharedMemory = 227 * 1024;  // per block
inline constexpr int kSharedOther = 2048;         // at most: row statistics and barriers
inline constexpr int kKeysBytes = 6 * kTileBytes + kStages * kExchangeBytes + kSharedOther;
inline constexpr int kQueriesBytes = 7 * kTileBytes + kSharedOther;
inline constexpr int kSharedBytes = kKeysBytes > kQueriesBytes ? kKeysBytes : kQueriesBytes;
static_assert(kSharedBytes <= kSharedMemory);
static_assert(kWarpgroupThreads * (kProducerRegisters + kConsumers * kConsumerRegisters) <=
              65536 / kThreads / 8 * 8 * kThreads);
// Registers that a consumer thread holds: sums, two tiles of scores, and a left operand.
inline constexpr int kHeldRegisters = kHeadDim / 2 + 2 * (kRows / 2) + kRows / 4;
static_assert(kHeldRegisters + 24 <= kConsumerRegisters);

using attention::BandLimits, attention::seen_from_keys, attention::TileRange;

// Returns the steps of 64 queries that see keys of 64-key tile `tile`.
// If the tile has rows past the last key, all steps need their mask.
constexpr TileRange query_steps(const BandLimits& limits, int queries, int tile) {
  const int first = tile * kRows;
  TileRange range = attention::tile_range(seen_from_keys(limits, queries), limits.len_kv, first,
                                          first + kRows, kRows);
  if (first + kRows > limits.len_kv) range.full_begin = range.full_end = range.end;
  return range;
}

// Returns the tiles of 64 keys that query block `block` sees.
constexpr TileRange key_tiles(const BandLimits& limits, int queries, int block) {
  return attention::tile_range(limits, queries, block * kBlockQ, (block + 1) * kBlockQ, kRows);
}

// Block `index` of the blocks for keys; under a causal mask, a head's first tile is the longest.
struct KeyTile {
  int batch_head, tile;
};
constexpr KeyTile key_tile(const attention::TileOrder& order, uint32_t index) {
  const attention::TileOrder::Place place = order.at(index);
  const uint32_t tile = order.longest_first ? order.q_tiles - 1 - place.q_tile : place.q_tile;
  return {static_cast<int>(place.batch_head), static_cast<int>(tile)};
}

}  // namespace flashcore::cuda::backward_sm90::wide
