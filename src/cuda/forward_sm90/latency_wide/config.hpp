// The resource page of forward_sm90_latency:wide: a cluster of two blocks computes 128 queries.
//
//   a block   64 queries; two warpgroups, each with every other KV tile, and one that copies
//   memory    | Q | rings of K and V tiles per warpgroup | barriers | sums |
//
// Both blocks of the cluster receive every KV tile: each block requests one half, for both.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_sm90::latency_wide {

inline constexpr int kHeadDim = 128;  // upper bound of Q's and V's; the rest is padded with zeros
inline constexpr int kRanks = 2;      // blocks per cluster
inline constexpr int kRankQ = 64;     // queries per block
inline constexpr int kBlockQ = kRanks * kRankQ;  // per cluster
inline constexpr int kBlockKv = 64;              // keys per tile
inline constexpr int kGroups = 2;                // computing warpgroups per block
inline constexpr int kSlots = 3;  // K tiles per warpgroup in memory at once; equally many V tiles
inline constexpr int kGroupWarps = 4, kWarps = kGroups * kGroupWarps;  // per warpgroup, in total
inline constexpr int kThreads = 32 * (kWarps + kGroupWarps);

inline constexpr int kRings = 2 * kGroups;  // K and V of each warpgroup; one warp copies each
inline constexpr int kTiles = 1 + kRings * kSlots;
inline constexpr int kTileBytes = 2 * kBlockKv * kHeadDim;
inline constexpr int kBarriers = kTiles + kRings * kSlots + kGroupWarps;
inline constexpr int kBarrierBytes = (8 * kBarriers + 15) / 16 * 16;
inline constexpr int kSumBytes = 8 * 2 * 32 * kGroupWarps;
inline constexpr int kSmemBytes = kTiles * kTileBytes + kBarrierBytes + kSumBytes;
static_assert(kSmemBytes <= 227 * 1024);
static_assert(kRings == kGroupWarps);

// Registers per copying thread and per computing thread: 64 Ki in total.
inline constexpr int kCopyRegisters = 24, kComputeRegisters = 240;
static_assert(32 * kGroupWarps * (kCopyRegisters + kGroups * kComputeRegisters) <= 64 * 1024);

}  // namespace flashcore::cuda::forward_sm90::latency_wide
