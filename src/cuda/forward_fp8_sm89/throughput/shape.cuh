// The compile-time geometry of one instance, and its block's shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/attention/fp8/cap.cuh"
#include "cuda/attention/fp8/exact_rows.cuh"
#include "cuda/attention/softcap.hpp"
#include "cuda/attention/units.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"
#include "cuda/forward_fp8_sm89/throughput/task.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

using attention::ElementType;
using attention::kLn2, attention::kLog2E, attention::kNoKey;

// Limits a factor derived from a finite scale to finite values, since 0 times it must be 0.
__device__ __forceinline__ float finite_of(float x, float scale) {
  return isfinite(scale) ? clamped_to_finite(x) : x;
}

// Turns a product of stored elements into a score in natural units.
struct NaturalScore {
  float scale, cap, rate;

  __device__ __forceinline__ NaturalScore(const Params& p, const Task& task)
      : scale(score_scale(p, task, 1)),
        cap(p.cap),
        rate(p.cap > 0 ? finite_of(scale / p.cap, scale) : 0.0F) {}
  __device__ __forceinline__ float operator()(float product) const {
    if (!(cap > 0)) return product * scale;
    const float x = product * rate;
    if (fabsf(x) > attention::kCapNear) return cap * tanhf(x);
    return product * scale * attention::tanh_ratio(x * x);
  }
};

template <int kConfigIndex>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  // What attention/fp8/exact_rows.cuh asks for.
  static constexpr bool kOptions = true, kE5M2 = false, kVTransposed = false;
  static constexpr int kHeadDimQk = kConfig.head_dim, kHeadDimV = kConfig.head_dim;
  using Params = throughput::Params;
  using Task = throughput::Task;
  using ScoreOf = NaturalScore;

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
  struct Tiles {
    alignas(tile::kTileAlignment) unsigned char q[QTile::kBytes];
    unsigned char kv[kStages][2][KvTile::kBytes];  // stage, K or V
  };
  struct Shared : Tiles {
    Work work;
  };
  static_assert(sizeof(Work) <= kWorkBytes);
  static_assert(sizeof(Tiles) == static_cast<std::size_t>(kConfig.tile_bytes()));
};

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
