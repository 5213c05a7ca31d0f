// The resource page of forward_medium_sm90: a cluster of two blocks computes 128 queries.
//
//   a block   two warpgroups of 64 queries each, which read the same tiles of keys
//   memory    | Q of each | K and V tiles, a ring | barriers | messages |
//
// Each block of the cluster has every other tile of keys; they merge once.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_medium_sm90 {

inline constexpr int kHeadDim = 128;  // Q's and V's are at most this; the rest is padded with zeros
inline constexpr int kGroupQ = 64;    // queries of a warpgroup
inline constexpr int kGroups = 2;     // warpgroups of a block
inline constexpr int kBlockQ = kGroups * kGroupQ;
inline constexpr int kBlockKv = 64;  // keys of a tile
inline constexpr int kRanks = 2;     // blocks of a cluster
inline constexpr int kSlots = 5;     // tiles of keys in memory at once, and as many of values
inline constexpr int kGroupWarps = 4, kWarps = kGroups * kGroupWarps, kThreads = 32 * kWarps;

inline constexpr int kTiles = kGroups + 2 * kSlots;  // Q, K, V
inline constexpr int kTileBytes = 2 * kBlockKv * kHeadDim;
// What a warp sends to the other block: half of the columns of 16 rows, and two log-sum-exps a
// lane.
inline constexpr int kMessageBytes = 4 * 16 * kHeadDim / 2 + 2 * 4 * 32;
inline constexpr int kBarrierBytes = (8 * (kTiles + kWarps + kGroups) + 4 * kSlots + 15) / 16 * 16;
inline constexpr int kSmemBytes = kTiles * kTileBytes + kBarrierBytes + kWarps * kMessageBytes;
static_assert(kSmemBytes <= 227 * 1024);
static_assert(kSlots >= kWarps / 2 && kSlots <= kWarps);  // warps make barriers and counters

}  // namespace flashcore::cuda::forward_medium_sm90
