// The geometry of blocks that share keys: 128 queries, two warpgroups of 64 each, every tile of
// keys read by both. A cluster is one block, or two that have every other tile of keys each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/forward_medium_sm90/config.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

template <int kConfigIndex, class Element_, bool kWhole_>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr bool kWhole = kWhole_;  // every block sees all keys, and tiles are full
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kRanks = kConfig.ranks;  // blocks of a cluster
  static constexpr int kSlots = kConfig.slots;  // tiles of keys, and of values, in memory at once
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  static constexpr int kQkSteps = kHeadDim / 16;
  static constexpr int kOutProducts = kHeadDim / 8;
  static constexpr int kStoredColumns = kHeadDim / kRanks;
  static constexpr int kStoredProducts = kOutProducts / kRanks;  // what a block stores of a row

  using Tile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  // Tiles and their barriers.
  static constexpr int kTiles = kConfig.tiles();
  static constexpr int q_tile(int group) { return group; }
  static constexpr int k_tile(int slot) { return kGroups + slot; }
  static constexpr int v_tile(int slot) { return kGroups + kSlots + slot; }

  // What a warp sends to that of the same rows in the other block: the outputs that are stored
  // there, lane by lane as accumulators are, and each lane's two log-sum-exps.
  struct Message {
    alignas(16) float outputs[kStoredProducts][32][4];
    float lse[2][32];
  };

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char tiles[kTiles][Tile::kBytes];
    uint64_t full[kTiles];
    uint64_t received[kWarps];
    uint64_t lse_received[kGroups];
    uint32_t readers[kSlots];              // warps that have read a slot, counted since the start
    alignas(16) Message messages[kWarps];  // not there where a cluster is one block
  };
  static_assert(kRanks == 1 || sizeof(Message) == kConfig.message_bytes());
  static_assert(offsetof(Shared, messages) + kConfig.messages() * sizeof(Message) ==
                kConfig.smem_bytes());
};

}  // namespace flashcore::cuda::forward_medium_sm90
