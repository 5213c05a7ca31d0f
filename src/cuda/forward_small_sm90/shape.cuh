// The compile-time geometry of one instance, and what a block shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/split.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_small_sm90 {

// Tiles and their barriers, in the order in which their copies start.
constexpr int kQTile = 0;
constexpr int k_tile(int group, int slot) { return 1 + slot * kGroups + group; }
constexpr int v_tile(int group, int slot) { return k_tile(group, slot) + kGroups * kSlots; }
constexpr bool is_v(int tile) { return tile >= v_tile(0, 0); }

template <int kConfigIndex, class Element_, bool kWhole_>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr bool kWhole = kWhole_;  // every block sees all keys, and tiles are full
  static constexpr int kHeadDim = kConfig.head_dim;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  static constexpr int kQkSteps = kHeadDim / 16;
  static constexpr int kOutProducts = kHeadDim / 8;
  static constexpr int kRanks = kConfig.ranks;
  static constexpr int kParts = kRanks * kGroups;
  static constexpr int part_of(int rank, int group) {
    return forward_small_sm90::part_of(rank, group, kRanks);
  }
  static constexpr int kStoredColumns = kHeadDim / kRanks;  // of a row, by one block
  static constexpr int kPieces = kStoredColumns / 32;       // a lane stores 8 columns of each

  // Whether partial results go over in 32 bits, and not in fp16. That is another rounding, which
  // where a row's weight lies on a few keys of two parts, so that nothing averages its error, may
  // take a result of fp16 past its limit. It has three bits more than bf16.
  static constexpr bool kWide = Element::kIsFp16 && !kWhole;
  static constexpr int kVectors = Config::vectors(kWide);  // of 16 bytes, that a lane sends

  using Tile = tile::SmemTile<kBlockKv, kHeadDim, 2>;
  static_assert(kBlockQ == kBlockKv);

  // A part's share of a warp's outputs, as one warp sends it to another: see merge.cuh.
  struct Message {
    uint32_t outputs[kPieces * kVectors][32][4];
    float lse[32];  // by lane: four have a row
  };
  static_assert(sizeof(Message) == kConfig.message_bytes(kWide));

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char tiles[kTiles][Tile::kBytes];
    Message messages[kGroups][kGroupWarps][kParts];  // [receiver][its warp][sender]
    uint64_t full[kTiles];
    uint64_t received[kGroups][kGroupWarps];
    uint64_t lse_received[kGroups];
  };
  // The tail that alignment adds is not used.
  static_assert(offsetof(Shared, lse_received) + sizeof(Shared::lse_received) ==
                kConfig.smem_bytes(kWide));
};

// Named barriers; 0 is that of __syncthreads.
enum Barrier : int { kPair = 1, kGroupIsDone = 5 };  // + warp of a warpgroup, + warpgroup

}  // namespace flashcore::cuda::forward_small_sm90
