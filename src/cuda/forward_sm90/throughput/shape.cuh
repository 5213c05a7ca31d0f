// The compile-time geometry of one instance, its block's shared memory, and ring positions.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/attention/units.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/packed_walk.cuh"
#include "cuda/forward_sm90/throughput/params.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/tile/grouped_tile.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

using attention::kLn2, attention::kLog2E, attention::kNoKey;

enum class Kind { plain, paged, options };

template <int kConfigIndex, class Element_, bool kFeatures_, Kind kKind = Kind::plain>
struct Shape {
  static constexpr bool kPaged = kKind == Kind::paged;  // keys and values lie in pages
  // Scores are changed by what belongs to pairs: biases, masks, ALiBi.
  static constexpr bool kOptions = kKind == Kind::options;
  static constexpr Config kConfig = [] {
    if constexpr (kOptions)
      return kOptionConfigs[kConfigIndex];
    else
      return kConfigs[kConfigIndex];
  }();
  using Element = Element_;
  // True if a thread holds its index, and its sums while scores are recomputed.
  // Otherwise it reads the index again, and the sums are in shared memory.
  static constexpr bool kHoldsThread = kConfig.consumers != 3;
  // True if a warp holds V's descriptor. Found by trial:
  // with the other choice, ptxas serialises products.
  static constexpr bool kHoldsV = !kFeatures_ && kKind == Kind::plain && kConfig.head_dim_qk <= 128;
  static constexpr bool kHoldsSums = !kFeatures_ && !kOptions && kConfig.consumers != 3;
  // True if a block's ALiBi is prepared before its scores are there. Found by trial, too.
  static constexpr bool kBeginsAlibi = kConfig.head_dim_qk > 64;
  static constexpr bool kFeatures = kFeatures_;  // softcap, or a scale that is not positive
  using KernelParams =
      std::conditional_t<kPaged, PagedParams, std::conditional_t<kOptions, OptionParams, Params>>;
  using KernelMaps = std::conditional_t<kOptions, OptionMaps, Maps>;
  static constexpr int kConsumers = kConfig.consumers;
  static constexpr int kStages = kConfig.stages;  // of the K ring, and of the V ring
  static constexpr int kBlockKv = kConfig.block_kv;
  static constexpr int kQSlots = kConfig.q_slots;
  // True if outputs are staged in Q's slot.
  static constexpr bool kStagesOutputs = kQSlots > 1;
  // A task is written while consumers may still compute the
  // one before, or store the outputs of the one before that.
  static constexpr int kTaskSlots = 4;

  using QTile = tile::SmemTile<kWarpgroupRows, kConfig.columns_qk(), 2>;  // per consumer
  template <int kColumns>
  using KvTile = std::conditional_t<kPaged, tile::GroupedTile<kBlockKv, kColumns>,
                                    tile::SmemTile<kBlockKv, kColumns, 2>>;
  using KTile = KvTile<kConfig.columns_qk()>;
  using VTile = KvTile<kConfig.columns_v()>;

  using BiasTile = tile::SmemTile<kWarpgroupRows, kBlockKv, 2>;  // per consumer

  static constexpr bool kHalves = kBlockKv == 128;  // half a block can also be a product

  static constexpr int kQkSteps = kConfig.head_dim_qk / 16;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 16;
  // O is computed in parts of at most 192 columns.
  static constexpr int kOutParts = kConfig.head_dim_v > 192 ? 2 : 1;
  static constexpr int kOutProducts = kConfig.head_dim_v / 8 / kOutParts;
  static constexpr int kPartPanels = VTile::kPanels / kOutParts;

  // Page information per task slot.
  struct PageSlots {
    TaskPages of[kTaskSlots];
  };
  struct OptionSlots {
    alignas(tile::kTileAlignment) unsigned char bias[kConsumers][BiasTile::kBytes];
    uint64_t full[kConsumers], empty[kConsumers];
    TaskOptions of[kTaskSlots];
  };
  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[kQSlots][kConsumers][QTile::kBytes];
    unsigned char k[kStages][KTile::kBytes];
    unsigned char v[kStages][VTile::kBytes];
    uint64_t q_full[kQSlots][kConsumers], q_empty[kQSlots][kConsumers];
    uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
    uint64_t task_wanted, task_found;
    TaskInfo task[kTaskSlots];
    PackedWalk<KernelParams> walk;
    bool caps_exactly[kFeatures ? kWarpgroupWarps * kConsumers : 1];    // per warp
    float2 saved_sum[kHoldsSums ? 1 : kWarpgroupThreads * kConsumers];  // per thread
    [[no_unique_address]] std::conditional_t<kPaged, PageSlots, NoTaskPages> pages;
    [[no_unique_address]] std::conditional_t<kOptions, OptionSlots, NoTaskOptions> options;
  };
  // Byte offsets of its arrays: addresses in shared memory are 32-bit sums.
  static constexpr uint32_t kQ = offsetof(Shared, q), kK = offsetof(Shared, k),
                            kV = offsetof(Shared, v);
  static constexpr uint32_t kQFull = offsetof(Shared, q_full), kQEmpty = offsetof(Shared, q_empty),
                            kKFull = offsetof(Shared, k_full), kKEmpty = offsetof(Shared, k_empty),
                            kVFull = offsetof(Shared, v_full), kVEmpty = offsetof(Shared, v_empty);
  static constexpr uint32_t kBias = [] {
    if constexpr (kOptions)
      return offsetof(Shared, options) + offsetof(OptionSlots, bias);
    else
      return 0;
  }();
  static constexpr uint32_t kBiasFull = [] {
    if constexpr (kOptions)
      return offsetof(Shared, options) + offsetof(OptionSlots, full);
    else
      return 0;
  }();
  static constexpr uint32_t kBiasEmpty = kBiasFull + 8 * kConsumers;
  static_assert(sizeof(Shared) <= static_cast<std::size_t>((kOptions ? option_tile_bytes(kConfig)
                                                                     : kConfig.tile_bytes()) +
                                                           kBarrierBytes));
};

// A ring position: the number of slots passed, held in one register.
template <int kSlots>
struct RingPosition {
  static_assert((kSlots & (kSlots - 1)) == 0);
  uint32_t passed = 0;

  constexpr uint32_t slot() const { return passed % kSlots; }
  constexpr uint32_t parity() const { return passed / kSlots % 2; }  // of the slot's current round
  constexpr void next() { ++passed; }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
