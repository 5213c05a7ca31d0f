// The resource page of forward_sm90_latency_wide: a cluster of two blocks computes 128 queries.
//
//   a block   64 queries; two warpgroups, each with every other tile of keys, and one that copies
//   memory    | Q | rings of K and V tiles, of each warpgroup | barriers | sums |
//
// Both blocks of the cluster get every tile of keys: each asks for half of it, for both.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_sm90::latency_wide {

inline constexpr int kHeadDim = 128;  // Q's and V's are at most this; the rest is padded with zeros
inline constexpr int kRanks = 2;      // blocks of a cluster
inline constexpr int kRankQ = 64;     // queries of a block
inline constexpr int kBlockQ = kRanks * kRankQ;  // of a cluster
inline constexpr int kBlockKv = 64;              // keys of a tile
inline constexpr int kGroups = 2;                // warpgroups of a block that compute
inline constexpr int kSlots = 3;  // K tiles of a warpgroup in memory at once, and as many V tiles
inline constexpr int kGroupWarps = 4, kWarps = kGroups * kGroupWarps;  // of those, and in all
inline constexpr int kThreads = 32 * (kWarps + kGroupWarps);

inline constexpr int kRings = 2 * kGroups;  // K and V of each warpgroup: a warp copies each
inline constexpr int kTiles = 1 + kRings * kSlots;
inline constexpr int kTileBytes = 2 * kBlockKv * kHeadDim;
inline constexpr int kBarriers = kTiles + kRings * kSlots + kGroupWarps;
inline constexpr int kBarrierBytes = (8 * kBarriers + 15) / 16 * 16;
inline constexpr int kSumBytes = 8 * 2 * 32 * kGroupWarps;
inline constexpr int kSmemBytes = kTiles * kTileBytes + kBarrierBytes + kSumBytes;
static_assert(kSmemBytes <= 227 * 1024);
static_assert(kRings == kGroupWarps);

// Registers of a thread that copies and of one that computes: 64 Ki in all.
inline constexpr int kCopyRegisters = 24, kComputeRegisters = 240;
static_assert(32 * kGroupWarps * (kCopyRegisters + kGroups * kComputeRegisters) <= 64 * 1024);

}  // namespace flashcore::cuda::forward_sm90::latency_wide
