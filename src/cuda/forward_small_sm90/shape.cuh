// The compile-time geometry of one instance, and what a block shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_small_sm90 {

template <int kConfigIndex, class Element_, bool kWhole_>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr bool kWhole = kWhole_;  // no tile of keys needs a mask
  static constexpr int kHeadDim = kConfig.head_dim, kSlots = kConfig.slots;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  static constexpr int kQkSteps = kHeadDim / 16;
  static constexpr int kOutProducts = kHeadDim / 8;
  static constexpr int kPieces = kConfig.column_halves();
  // Whether there are registers for the scores of two tiles beside O. (A thread may have 168.)
  static constexpr bool kPairs = kHeadDim == 64;

  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;
  using KvTile = tile::SmemTile<kBlockKv, kHeadDim, 2>;

  // A quarter of a warp's outputs, as one warp sends it to another: see merge.cuh.
  struct Message {
    uint32_t outputs[kPieces][32][4];
    float lse[8];
  };
  static_assert(sizeof(Message) == kConfig.message_bytes());

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];
    unsigned char k[kGroups][kSlots][KvTile::kBytes];
    unsigned char v[kGroups][kSlots][KvTile::kBytes];
    Message local[kGroups][kGroupWarps];            // [receiver][warp], of the other warpgroup
    Message remote[kGroups][kGroups][kGroupWarps];  // [receiver][sender][warp], of the other block
    uint64_t q_full;
    uint64_t k_full[kGroups][kSlots], v_full[kGroups][kSlots];
    uint64_t k_empty[kGroups][kSlots], v_empty[kGroups][kSlots];
    uint64_t messages[kGroups];  // [receiver]: what is sent to `remote` has come
  };
  // The tail that alignment adds is not used.
  static_assert(offsetof(Shared, messages) + sizeof(Shared::messages) == kConfig.smem_bytes());
};

// Named barriers; 0 is that of __syncthreads.
enum Barrier : int { kReady = 1, kExchange = 2 };  // kExchange + warp of a warpgroup

// A place in a ring: slot and the parity of its current round.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

}  // namespace flashcore::cuda::forward_small_sm90
