// The geometry of an instance: its tiles, and its warps' partial results.
#pragma once

#include "cuda/attention/element.cuh"
#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_sm80::latency {

using attention::Bf16, attention::Fp16;

// kWhole: every query and KV tile is full, see WholeParams.
template <int kConfigIndex, class Element_, bool kWhole_>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr bool kWhole = kWhole_;
  static constexpr int kHeadDim = kConfig.head_dim, kWarpKeys = kConfig.warp_keys;
  static constexpr int kKeyProducts = kWarpKeys / 8, kOutProducts = kHeadDim / 8;
  // Steps of Q that stay in registers: all of them if there is room.
  static constexpr int kQSteps = kHeadDim == 64 ? kHeadDim / 16 : 1;
  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;
  using KvTile = tile::SmemTile<kWarpKeys, kHeadDim, 2>;

  // Maxima (of scaled scores, log2) and sums of the warps' rows.
  struct Rows {
    float max[kConfig.warps][kBlockQ], sum[kConfig.warps][kBlockQ];
  };
  static_assert(sizeof(Rows) == static_bytes(kConfig));
};

// A warp's partial result: lane l owns rows l / 4 and l / 4 + 8 of each 16-row group (tile/fragment.hpp).
template <class S>
struct Partial {
  float o[kRowGroups][S::kOutProducts][4];
  float max[kRowGroups][2], sum[kRowGroups][2];
};

}  // namespace flashcore::cuda::forward_sm80::latency
