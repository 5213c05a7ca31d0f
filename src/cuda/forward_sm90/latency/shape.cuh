// The compile-time geometry of one instance, and the block's shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/forward_sm90/common/task.cuh"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_sm90::latency {

// Tiles and their barriers, in the order in which their copies start.
constexpr int kQTile = 0;
constexpr int k_tile(int group, int slot) { return 1 + slot * kGroups + group; }
constexpr int v_tile(int group, int slot) { return k_tile(group, slot) + kGroups * kSlots; }
constexpr bool is_v(int tile) { return tile >= v_tile(0, 0); }

template <int kConfigIndex, class Element_, TileBounds kTileBounds_>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr TileBounds kTileBounds = kTileBounds_;
  static constexpr bool kWhole = kTileBounds == TileBounds::none;
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  static constexpr int kQkSteps = kHeadDim / 16;
  static constexpr int kOutProducts = kHeadDim / 8;
  static constexpr int kRanks = kConfig.ranks;
  static constexpr int kParts = kRanks * kGroups;
  static constexpr int part_of(int rank, int group) {
    return attention::latency::part_of(rank, group, kRanks);
  }
  static constexpr int kStoredColumns = kHeadDim / kRanks;  // per row, by one block
  static constexpr int kPieces = kStoredColumns / 32;       // a lane stores 8 columns per piece

  using Tile = tile::SmemTile<kBlockKv, kHeadDim, 2>;
  static_assert(kBlockQ == kBlockKv);

  // [receiver][its warp]: outputs from the block's other warpgroup; maxima and sums of rows from both.
  struct SwapMemory {
    float2 swaps[kRanks][kGroups][kGroupWarps][kStoredColumns / 8][32];
    float2 rows[kGroups][kGroupWarps][kGroups][8];
    static constexpr int kOutputBytes = 0, kRowBytes = 0;  // received from another block
  };
  // Adds messages from the other block of a cluster.
  struct SumsMemory {
    float2 swaps[kRanks][kGroups][kGroupWarps][kStoredColumns / 8][32];
    float2 rows[kGroups][kGroupWarps][kGroups][8];
    float chunks[kGroups][kGroupWarps][kStoredColumns / 16][32][4];
    float2 block_rows[kGroups][kGroupWarps][8];
    static constexpr int kOutputBytes = sizeof(chunks[0][0]), kRowBytes = sizeof(block_rows[0]);
  };
  using MergeMemory = std::conditional_t<kRanks == 1, SwapMemory, SumsMemory>;
  static_assert(sizeof(MergeMemory) == kConfig.merge_bytes());

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char tiles[kTiles][Tile::kBytes];
    MergeMemory merge;
    uint64_t full[kTiles];
    uint64_t received[kGroups][kGroupWarps];
    uint64_t rows_received[kGroups];
  };
  // The tail padding is not used.
  static_assert(offsetof(Shared, rows_received) + sizeof(Shared::rows_received) ==
                kConfig.smem_bytes());
};

// Named barriers; __syncthreads uses barrier 0.
enum Barrier : int { kPair = 1, kGroupIsDone = 5 };  // + warp of a warpgroup, + warpgroup

}  // namespace flashcore::cuda::forward_sm90::latency
