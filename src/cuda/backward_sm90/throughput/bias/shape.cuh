// The geometry of dBias' kernel, and its block's shared memory.
//
//   | ring: K and Q | V and dO | K and Q of the next step | ... | bias | row statistics | steps |
//
// A step is 128 queries and 128 keys. A bias of 32 bits lies in the ring's last place. Rows of dBias are staged over V
// of its last step, or, where V is smaller, behind the bias.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/backward_sm90/throughput/bias/params.hpp"
#include "cuda/backward_sm90/throughput/pair_terms.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

// As in config.hpp; this producer finds its steps.
inline constexpr int kBiasProducerRegisters = 56, kBiasConsumerRegisters = 224;

// One step of a tile of dBias; `item`: the tile, negative if there is no more.
struct BiasStep {
  int32_t item, is_first, is_last;  // of the tile's steps
  int32_t has_pairs, is_masked;
  attention::BandLimits limits;
  PairTile tile;
};

template <int kConfigIndex, class Element_>
struct BiasShape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr int kBlockQ = kBiasTile;
  static constexpr int kScoreProducts = kBlockQ / 8, kQuerySteps = kBlockQ / 16;
  static constexpr int kDimSteps = kConfig.head_dim / 16;
  using Tile = tile::SmemTile<kBiasTile, kConfig.head_dim, 2>;  // of Q, K, V and dO
  using DsTile = tile::SmemTile<kBlockQ, kBlockKeys, 2>;        // of the bias, and of dBias
  static constexpr bool kStagesOverV = Tile::kBytes >= DsTile::kBytes;
  static constexpr int kSlots = kStagesOverV ? 3 : 4;
  // Steps whose statistics are kept: a step begins once all but so many of those before it have ended.
  static constexpr int kKept = kSlots / 2 + 1;

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char ring[kSlots][2 * Tile::kBytes];
    unsigned char bias[(kStagesOverV ? 1 : 2) * DsTile::kBytes];
    alignas(16) float row_stats[kKept][2 * kBlockQ];
    uint64_t full[kSlots], empty[kSlots];
    uint64_t bias_full, bias_empty;
    BiasStep step[kKept];
    PhiloxKey key;  // of dropout
  };
  static_assert(sizeof(Shared) <= kSharedMemory);
  static_assert(!kConfig.has_wide_bias() || 2 * Tile::kBytes >= 2 * DsTile::kBytes);
  static constexpr uint32_t kRing = offsetof(Shared, ring), kBias = offsetof(Shared, bias),
                            kRowStats = offsetof(Shared, row_stats), kFull = offsetof(Shared, full),
                            kEmpty = offsetof(Shared, empty),
                            kBiasFull = offsetof(Shared, bias_full),
                            kBiasEmpty = offsetof(Shared, bias_empty);

  __device__ static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::dynamic_shared()); }
  __device__ __forceinline__ static bool is_wide(const Pairs& pairs) {
    return kConfig.has_wide_bias() && pairs.bias_tiles && pairs.bias_type == ElementType::f32;
  }
  __device__ __forceinline__ static uint32_t slots(const Pairs& pairs) {
    return is_wide(pairs) ? kSlots - 1 : kSlots;
  }
  // Where a consumer's part of row `row` of dBias, 64 keys, is staged.
  __device__ __forceinline__ static uint32_t staged_row(uint32_t slot, uint32_t group,
                                                        uint32_t row) {
    if constexpr (kStagesOverV) {
      constexpr uint32_t kOwnRows = kWarpgroupKeys;  // of V, in each of its panels
      return kRing + slot * (2 * Tile::kBytes) + row / kOwnRows * Tile::kPanelBytes +
             (group * kOwnRows + row % kOwnRows) * Tile::kPanelRowBytes;
    } else {
      return kBias + DsTile::kBytes + group * DsTile::kPanelBytes + row * DsTile::kPanelRowBytes;
    }
  }
  // Where tiles of the bias are.
  __device__ __forceinline__ static uint32_t bias_at(const Pairs& pairs) {
    return is_wide(pairs) ? kRing + (kSlots - 1) * (2 * Tile::kBytes) : kBias;
  }
};

// A place in the ring, and the parity of its phase.
struct BiasSlot {
  uint32_t at = 0, parity = 0;

  __device__ __forceinline__ void advance(uint32_t slots) {
    if (++at < slots) return;
    at = 0;
    parity ^= 1;
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput
