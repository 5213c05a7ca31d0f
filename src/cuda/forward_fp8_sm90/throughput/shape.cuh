// The compile-time geometry of one instance, and its block's shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/attention/fp8/exact_rows.cuh"
#include "cuda/attention/units.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"
#include "cuda/forward_fp8_sm90/throughput/task.hpp"
#include "cuda/tile/ring.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

using attention::ElementType, attention::TileRange;
using attention::kLn2, attention::kLog2E, attention::kNoKey;
using tile::Ring;

template <int kConfigIndex, bool kOptions_ = false, bool kE5M2_ = false, bool kVTransposed_ = false>
struct Shape {
  static constexpr bool kOptions = kOptions_;          // with OptionParams
  static constexpr bool kE5M2 = kE5M2_;                // Q, K and V are e5m2
  static constexpr bool kVTransposed = kVTransposed_;  // the caller's V is stored transposed
  static constexpr Config kConfig = [] {
    if constexpr (kOptions_) return kOptionConfigs[kConfigIndex];
    return kConfigs[kConfigIndex];
  }();
  using Params = std::conditional_t<kOptions, OptionParams, attention::fp8::Params>;
  using Task = std::conditional_t<kOptions, OptionTask, attention::fp8::Task>;
  using ScoreOf = attention::fp8::ScoreOf<Shape>;
  static constexpr int kHeadDimQk = kConfig.head_dim, kHeadDimV = kConfig.head_dim_v;
  static constexpr int kConsumers = kConfig.consumers;
  static constexpr int kBlockKeys = kConfig.block_kv;
  static constexpr int kQSlots = kConfig.q_slots;
  static constexpr int kKStages = kConfig.k_stages, kVStages = kConfig.v_stages;

  using QTile = tile::SmemTile<kWarpgroupRows, kConfig.head_dim, 1>;  // per consumer
  using KTile = tile::SmemTile<kBlockKeys, kConfig.head_dim, 1>;
  // Transposed, followed by the rows of ones.
  using VTile = tile::SmemTile<kConfig.head_dim_v + kConfig.ones_rows(), kBlockKeys, 1>;
  static constexpr int kVCopied = kConfig.head_dim_v * kBlockKeys;  // without the ones

  static constexpr int kQkSteps = kConfig.head_dim / 32;
  static constexpr int kKeyProducts = kBlockKeys / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKeys / 32;
  static constexpr int kOutProducts = kConfig.head_dim_v / 8;
  static constexpr int kOnes = kOutProducts;  // the product of the ones

  struct Tiles {
    unsigned char q[kQSlots][kConsumers][QTile::kBytes];
    unsigned char k[kKStages][KTile::kBytes];
    unsigned char v[kVStages][VTile::kBytes];
    float4 o[kConsumers][kOutProducts][kWarpgroupThreads];  // each thread's own
    uint64_t q_full[kQSlots], q_empty[kQSlots];
    uint64_t k_full[kKStages], k_empty[kKStages], v_full[kVStages], v_empty[kVStages];
  };
  struct LargestScores {
    float2 scores[kConsumers * kWarpgroupThreads];  // each thread's own
  };
  struct NoScores {};
  struct alignas(tile::kTileAlignment) Shared : Tiles {
    Task task[kQSlots];
    std::conditional_t<kOptions, LargestScores, NoScores> largest;
  };
  // Byte offsets of its arrays: addresses in shared memory are 32-bit sums.
  static constexpr uint32_t kQ = offsetof(Tiles, q), kK = offsetof(Tiles, k),
                            kV = offsetof(Tiles, v), kO = offsetof(Tiles, o);
  static constexpr uint32_t kQFull = offsetof(Tiles, q_full), kQEmpty = offsetof(Tiles, q_empty),
                            kKFull = offsetof(Tiles, k_full), kKEmpty = offsetof(Tiles, k_empty),
                            kVFull = offsetof(Tiles, v_full), kVEmpty = offsetof(Tiles, v_empty);
  static_assert(sizeof(Shared) <= static_cast<std::size_t>(kConfig.shared_bytes()));
};

template <int kConfigIndex>
using TransposedVShape = Shape<kConfigIndex, false, false, true>;
template <int kConfigIndex, bool kE5M2>
using OptionShape = Shape<kConfigIndex, true, kE5M2>;

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
