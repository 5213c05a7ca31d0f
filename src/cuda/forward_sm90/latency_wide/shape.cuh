// The shared memory of a forward_sm90_latency_wide block, and the compile-time geometry of one instance.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/forward_sm90/common/maps.hpp"
#include "cuda/forward_sm90/latency_wide/config.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

template <class Element_, TileBounds kTileBounds_>
struct Shape {
  using Element = Element_;
  static constexpr TileBounds kTileBounds = kTileBounds_;
  static constexpr bool kWhole = kTileBounds == TileBounds::none;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  static constexpr int kQkSteps = kHeadDim / 16;
  static constexpr int kOutProducts = kHeadDim / 8;

  using Tile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  // Tiles and their barriers. Ring 2 * group is K's, ring 2 * group + 1 is V's.
  static constexpr int kQTile = 0;
  static constexpr int ring_tile(int ring, int slot) { return 1 + ring * kSlots + slot; }

  // Message from a warp of the warpgroup that ends first to the warp of the same rows
  // in the other: its outputs, lane by lane in accumulator order. It overlays K.
  struct Message {
    float outputs[kOutProducts][32][4];
  };
  static_assert(kGroupWarps * sizeof(Message) <= kSlots * Tile::kBytes);

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char tiles[kTiles][Tile::kBytes];
    uint64_t full[kTiles];
    uint64_t empty[kRings * kSlots];              // both blocks have read the slot
    uint64_t left[kGroupWarps];                   // the warp of these rows has sent its outputs
    alignas(16) float2 sums[kGroupWarps][2][32];  // of its lane's rows: reference and sum
  };
  static_assert(offsetof(Shared, sums) + sizeof(Shared::sums) == kSmemBytes);
};

// Named barriers; __syncthreads uses barrier 0.
enum Barrier : int { kTurn = 1, kScored = 3 };  // + warpgroup

}  // namespace flashcore::cuda::forward_sm90::latency_wide
