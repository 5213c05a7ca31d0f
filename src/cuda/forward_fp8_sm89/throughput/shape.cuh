// The compile-time geometry of one instance, and its block's shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/attention/softcap.hpp"
#include "cuda/attention/units.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"
#include "cuda/forward_fp8_sm89/throughput/task.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

using attention::kLn2, attention::kLog2E, attention::kNoKey;

template <int kConfigIndex>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];

  static constexpr int kBlockKv = kConfig.block_kv;

  using QTile = tile::SmemTile<kBlockQ, kConfig.head_dim, 1>;
  using KvTile = tile::SmemTile<kBlockKv, kConfig.head_dim, 1>;

  static constexpr int kQkSteps = kConfig.head_dim / 32;
  static constexpr int kKeyProducts = kBlockKv / 8;  // m16n8 accumulators of S
  static constexpr int kKeySteps = kBlockKv / 32;
  static constexpr int kOutProducts = kConfig.head_dim / 8;

  // Computed by one thread.
  struct Work {
    Task task;
    float scale;                   // from scores, when compared, to units of log2
    attention::SoftcapParams cap;  // takes scores in units of log2
  };
  struct Shared {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];
    unsigned char kv[kStages][2][KvTile::kBytes];  // stage, K or V
    Work work;
  };
  static_assert(sizeof(Work) <= kWorkBytes);
  static_assert(offsetof(Shared, work) == static_cast<std::size_t>(kConfig.tile_bytes()));
};

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
