// The resource page of forward_sm90_latency: one cluster of two blocks computes 64 queries.
//
//   a block   two warpgroups; each warp also initialises barriers and starts copies
//   memory    | Q | K and V tiles in their order of use | messages | barriers |
//
// Each of the cluster's four warpgroups has its own keys (attention/latency/key_tiles.hpp) and its own slots.
// If all keys fit the slots, they are loaded at once, without a wait. At head
// dimension 64, two blocks share one SM, so that one computes while the other waits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/attention/first_config.hpp"
#include "cuda/attention/latency/key_tiles.hpp"

namespace flashcore::cuda::forward_sm90::latency {

inline constexpr int kBlockQ = 64;   // queries per cluster
using attention::latency::kBlockKv;  // keys per tile, 64
inline constexpr int kGroups = 2;    // computing warpgroups per block
inline constexpr int kGroupThreads = 128, kGroupWarps = 4;
inline constexpr int kThreads = kGroups * kGroupThreads;
inline constexpr int kSlots = 2;  // K tiles per warpgroup in shared memory; equally many V tiles
inline constexpr int kTiles = 1 + 2 * kGroups * kSlots;  // Q, K, V
inline constexpr int kPanelColumns = 64;                 // 128 bytes, the swizzle
inline constexpr int kSharedMemory = 227 * 1024;         // per SM, less 1 KiB per block

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim;  // upper bound of Q's and V's; the rest is padded with zeros
  int blocks;    // per SM
  int ranks;     // blocks per cluster, 1 or 2

  constexpr int tile_bytes() const { return 2 * kBlockKv * head_dim; }

  // Bytes that a warp receives, in fp32: all columns of eight rows from the block's other
  // warpgroup, the columns that its block finishes from the other block, and eight bytes per row.
  constexpr int merge_bytes() const {
    const int swapped = 8 * (4 * head_dim + 8 * kGroups);
    const int sent = 8 * (4 * (head_dim / ranks) + 8);
    return kGroups * kGroupWarps * (swapped + (ranks - 1) * sent);
  }

  constexpr int barriers() const { return kTiles + kGroups * kGroupWarps + kGroups; }
  constexpr int smem_bytes() const {
    return tile_bytes() * kTiles + merge_bytes() + 8 * barriers();
  }
};

// One row per use; the first two differ in the number of registers per thread.
inline constexpr std::array kConfigs = {Config{.head_dim = 64, .blocks = 1, .ranks = 2},
                                        Config{.head_dim = 64, .blocks = 2, .ranks = 2},
                                        Config{.head_dim = 64, .blocks = 1, .ranks = 1},
                                        Config{.head_dim = 128, .blocks = 1, .ranks = 2},
                                        Config{.head_dim = 128, .blocks = 1, .ranks = 1}};
inline constexpr int kLargestHeadDim = 128;
inline constexpr int kMostKeysAlone = kGroups * kSlots * kBlockKv;  // in one block's shared memory

// Blocks per query tile. `one_wave`: with two blocks per tile, every block of the launch has
// one SM to itself. Otherwise one block computes the tile, provided that it holds all keys.
constexpr int ranks_of(int64_t seqlen_kv, bool one_wave) {
  return !one_wave && seqlen_kv <= kMostKeysAlone ? 1 : 2;
}

// Returns an index into kConfigs, or -1 if a head dimension is too large.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int64_t seqlen_kv,
                            bool one_wave) {
  const int ranks = ranks_of(seqlen_kv, one_wave);
  return attention::first_config(kConfigs, [&](const Config& c) {
    return head_dim_qk <= c.head_dim && head_dim_v <= c.head_dim && ranks == c.ranks &&
           (ranks == 1 || c.blocks > 1 || one_wave || c.head_dim == kLargestHeadDim);
  });
}

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  constexpr int kTileAlignment = 1024, kReserved = 1024;  // by the system, per block
  return c.head_dim % kPanelColumns == 0 && c.tile_bytes() % kTileAlignment == 0 &&
         c.blocks * (c.smem_bytes() + kReserved) <= kSharedMemory + kReserved;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));

}  // namespace flashcore::cuda::forward_sm90::latency
