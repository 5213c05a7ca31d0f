// What a block of forward_medium_sm90 shares, and the compile-time geometry of one instance.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/forward_medium_sm90/config.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_medium_sm90 {

template <class Element_, bool kWhole_>
struct Shape {
  using Element = Element_;
  static constexpr bool kWhole = kWhole_;  // every block sees all keys, and tiles are full
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  static constexpr int kQkSteps = kHeadDim / 16;
  static constexpr int kOutProducts = kHeadDim / 8;
  static constexpr int kStoredColumns = kHeadDim / kRanks;
  static constexpr int kStoredProducts = kOutProducts / kRanks;  // what a block stores of a row

  using Tile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  // Tiles and their barriers.
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
    uint32_t readers[kSlots];  // warps that have read a slot, counted since the start
    Message messages[kWarps];
  };
  static_assert(sizeof(Message) == kMessageBytes);
  static_assert(offsetof(Shared, messages) + sizeof(Shared::messages) == kSmemBytes);
};

}  // namespace flashcore::cuda::forward_medium_sm90
