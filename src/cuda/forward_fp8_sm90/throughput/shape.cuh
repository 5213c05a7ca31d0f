// The compile-time geometry of one instance, and what its block shares.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"
#include "cuda/forward_fp8_sm90/throughput/task.hpp"
#include "cuda/tile/ring.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

using attention::kLn2, attention::kLog2E, attention::kNoKey;
using tile::Ring;

template <int kConfigIndex>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  static constexpr int kConsumers = kConfig.consumers;
  static constexpr int kQSlots = kConfig.q_slots;
  static constexpr int kKStages = kConfig.k_stages, kVStages = kConfig.v_stages;

  using QTile = tile::SmemTile<kWarpgroupRows, kConfig.head_dim, 1>;  // of one consumer
  using KTile = tile::SmemTile<kBlockKv, kConfig.head_dim, 1>;
  using VTile = tile::SmemTile<kConfig.head_dim + kOnesRows, kBlockKv, 1>;  // transposed
  static constexpr int kVCopied = kConfig.head_dim * kBlockKv;              // without the ones

  static constexpr int kQkSteps = kConfig.head_dim / 32;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 32;
  static constexpr int kOutProducts = kConfig.head_dim / 8;
  static constexpr int kOnes = kOutProducts;  // the product of the ones

  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[kQSlots][kConsumers][QTile::kBytes];
    unsigned char k[kKStages][KTile::kBytes];
    unsigned char v[kVStages][VTile::kBytes];
    float4 o[kConsumers][kOutProducts][kWarpgroupThreads];  // of each thread, its own
    uint64_t q_full[kQSlots], q_empty[kQSlots];
    uint64_t k_full[kKStages], k_empty[kKStages], v_full[kVStages], v_empty[kVStages];
    Task task[kQSlots];
  };
  // Byte offsets of its arrays: addresses in shared memory are 32-bit sums.
  static constexpr uint32_t kQ = offsetof(Shared, q), kK = offsetof(Shared, k),
                            kV = offsetof(Shared, v), kO = offsetof(Shared, o);
  static constexpr uint32_t kQFull = offsetof(Shared, q_full), kQEmpty = offsetof(Shared, q_empty),
                            kKFull = offsetof(Shared, k_full), kKEmpty = offsetof(Shared, k_empty),
                            kVFull = offsetof(Shared, v_full), kVEmpty = offsetof(Shared, v_empty);
  static_assert(sizeof(Shared) <= static_cast<std::size_t>(kConfig.tile_bytes() + kBarrierBytes));
};

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
