// The geometry of a compiled kernel: tiles in shared memory and accumulators of a warp.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::backward_sm80::general {

template <Config kConfig>
struct Shape {
  static constexpr int kProducts = kConfig.block_y / 8;  // m16n8 products of a warp's scores
  static constexpr int kColumns = kConfig.head_dim / 8;  // of its outputs
  using XTile = tile::SmemTile<kConfig.block_x(), kConfig.head_dim, kConfig.element_bytes>;
  using YTile = tile::SmemTile<kConfig.block_y, kConfig.head_dim, kConfig.element_bytes>;
  using Scores = float[kProducts][4];
  using Sums = float[kColumns][4];

  static constexpr int kX2Offset = XTile::kBytes, kYOffset = 2 * XTile::kBytes;
  static constexpr int kY2Offset = YTile::kBytes;  // in a stage
  static constexpr int kRowStatsOffset = kYOffset + kConfig.stages * kConfig.stage_bytes();
  static_assert(XTile::kBytes == kConfig.x_bytes() && YTile::kBytes == kConfig.y_bytes());
};

}  // namespace flashcore::cuda::backward_sm80::general
