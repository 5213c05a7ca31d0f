// The resource page of forward_sm90_latency: one cluster of two blocks computes 64 queries.
//
//   a block   two warpgroups; each warp also makes barriers and starts copies
//   memory    | Q | K and V tiles in their order of use | messages | barriers |
//
// Each of the four warpgroups of a cluster has its own keys (attention/latency/key_tiles.hpp) and its own slots for them.
// A problem whose keys fit the slots is loaded at once, without a wait. At head dimension 64 an SM
// holds two blocks, so that one computes while the other waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/attention/latency/key_tiles.hpp"

namespace flashcore::cuda::forward_sm90::latency {

inline constexpr int kBlockQ = 64;   // queries of a cluster
using attention::latency::kBlockKv;  // keys of a tile, 64
inline constexpr int kGroups = 2;    // warpgroups of a block that compute
inline constexpr int kGroupThreads = 128, kGroupWarps = 4;
inline constexpr int kThreads = kGroups * kGroupThreads;
inline constexpr int kSlots = 2;  // K tiles of a warpgroup that are in memory, and as many V tiles
inline constexpr int kTiles = 1 + 2 * kGroups * kSlots;  // Q, K, V
inline constexpr int kPanelColumns = 64;                 // 128 bytes, the swizzle
inline constexpr int kSharedMemory = 227 * 1024;         // of an SM, a kilobyte a block less

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;  // the larger of Q's and V's is at most this; the rest is padded with zeros
  int blocks;    // that an SM holds at once
  int ranks;     // blocks of a cluster, 1 or 2

  constexpr int tile_bytes() const { return 2 * kBlockKv * head_dim; }

  // What a warp gets from others, in fp32: of eight rows all columns from the block's other
  // warpgroup, and those that its block finishes from the other block; and eight bytes per row.
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

// By what they are for; the first two differ in how many registers a thread may have.
inline constexpr std::array kConfigs = {Config{.head_dim = 64, .blocks = 1, .ranks = 2},
                                        Config{.head_dim = 64, .blocks = 2, .ranks = 2},
                                        Config{.head_dim = 64, .blocks = 1, .ranks = 1},
                                        Config{.head_dim = 128, .blocks = 1, .ranks = 2},
                                        Config{.head_dim = 128, .blocks = 1, .ranks = 1}};
inline constexpr int kLargestHeadDim = 128;
inline constexpr int kMostKeysAlone = kGroups * kSlots * kBlockKv;  // all in a block's memory

// Blocks a tile of queries. `one_wave`: every block of the launch has an SM of its own, with two
// blocks per tile. Where not, and one block holds all keys, it computes the tile alone.
constexpr int ranks_of(int64_t seqlen_kv, bool one_wave) {
  return !one_wave && seqlen_kv <= kMostKeysAlone ? 1 : 2;
}

// Index into kConfigs, or -1 when a head dimension is too large.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int64_t seqlen_kv,
                            bool one_wave) {
  const int ranks = ranks_of(seqlen_kv, one_wave);
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    const Config& config = kConfigs[i];
    if (head_dim_qk > config.head_dim || head_dim_v > config.head_dim) continue;
    if (ranks != config.ranks) continue;
    if (ranks == 1 || config.blocks > 1 || one_wave || config.head_dim == kLargestHeadDim) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// What the kernels rely on.
constexpr bool is_sound(const Config& c) {
  constexpr int kTileAlignment = 1024, kReserved = 1024;  // what the system takes of each block
  return c.head_dim % kPanelColumns == 0 && c.tile_bytes() % kTileAlignment == 0 &&
         c.blocks * (c.smem_bytes() + kReserved) <= kSharedMemory + kReserved;
}
static_assert([] {
  for (const Config& config : kConfigs) {
    if (!is_sound(config)) return false;
  }
  return true;
}());

}  // namespace flashcore::cuda::forward_sm90::latency
