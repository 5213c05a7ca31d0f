// The compile-time geometry of one instance, and the state of one warp.
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/tile_copy.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

template <Config kConfig>
struct Shape {
  static constexpr int kThreads = kConfig.threads();
  static constexpr int kGroups = kConfig.row_groups;
  static constexpr int kBlockQ = kConfig.block_q(), kBlockKv = kConfig.block_kv;
  static constexpr int kWarpRows = kConfig.warp_rows();
  static constexpr int kBytes = kConfig.element_bytes;
  static constexpr int kChunkElements = tile::kChunkBytes / kBytes;
  static constexpr int kQkSteps =
      kConfig.head_dim_qk * kBytes / 32;                     // per 32 bytes of Q's and K's rows
  static constexpr int kOutSteps = kConfig.head_dim_v / 16;  // per 16 columns of V and O

  using QTile = tile::SmemTile<kBlockQ, kConfig.stored_qk(), kBytes>;
  using KTile = tile::SmemTile<kBlockKv, kConfig.stored_qk(), kBytes>;
  using VTile = tile::SmemTile<kBlockKv, kConfig.stored_v(), kBytes>;
  using OTile = tile::SmemTile<kBlockQ, kConfig.stored_v(), kBytes>;
  using QCopy = TileCopy<QTile, kConfig.head_dim_qk, kThreads>;
  template <KeyOrder kOrder>
  using KCopy = TileCopy<KTile, kConfig.head_dim_qk, kThreads, kOrder>;
  template <KeyOrder kOrder>
  using VCopy = TileCopy<VTile, kConfig.head_dim_v, kThreads, kOrder>;

  static constexpr int kStageBytes = KTile::kBytes + VTile::kBytes;
  static constexpr int k_offset(int stage) { return QTile::kBytes + stage * kStageBytes; }
  static constexpr int v_offset(int stage) { return k_offset(stage) + KTile::kBytes; }
};

using attention::kLn2, attention::kLog2E, attention::kNoKey;

// A warp's state. Lane l owns rows l / 4 (slot 0) and l / 4 + 8 (slot 1) of each
// 16-row group, and columns 2 (l % 4) and + 1 of each product (tile/fragment.hpp).
template <Config kConfig>
struct WarpState {
  float o[kConfig.row_groups][kConfig.head_dim_v / 8][4];
  float sum[kConfig.row_groups][2];        // of this lane's exponentials
  float reference[kConfig.row_groups][2];  // of the exponents, log2; kNoKey before any key

  __device__ void clear() {
#pragma unroll
    for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        sum[g][slot] = 0;
        reference[g][slot] = kNoKey;
      }
#pragma unroll
      for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[g][n][e] = 0;
      }
    }
  }
};

// Accumulators of S for kProducts * 8 keys: a whole tile's, or a slice's.
template <int kGroups, int kProducts>
using Scores = float[kGroups][kProducts][4];

}  // namespace flashcore::cuda::forward_sm80::throughput
