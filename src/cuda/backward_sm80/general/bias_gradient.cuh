// dBias: a block owns a tile of it, and sums ds over the dimensions in which the bias has extent 1.
//
//   for each sequence, head and query tile that share the tile         | Q, dO
//     for each KV tile that shares it                                  | K, V | sums += ds
//
// Blocks add in a fixed order and share no element: the
// result is deterministic, and no copy of dBias is needed.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/gradients.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::backward_sm80::general {

// The tiles of one dimension that block number `place` sums: one, or all if the extent is 1.
struct Tiled {
  int begin, end;
};
constexpr Tiled tiled(bool is_sum, int place, int count) {
  return is_sum ? Tiled{0, count} : Tiled{place, place + 1};
}

// Sums over the 16 rows of each warp and over all warps, for each of the tile's columns.
template <Config kConfig>
__device__ __forceinline__ void add_rows(typename Shape<kConfig>::Scores& sums, float* shared,
                                         int warp, int lane) {
  constexpr int kProducts = Shape<kConfig>::kProducts;
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = sums[n][e] + sums[n][e + 2];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
      if (lane < 4) shared[warp * kConfig.block_y + 8 * n + 2 * lane + e] = sum;
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = 0;
      for (int from = 0; from < kConfig.warps; ++from) {
        sum += shared[from * kConfig.block_y + 8 * n + 2 * (lane % 4) + e];
      }
      sums[n][e] = sum;
    }
  }
}

// Sums over the columns, into each lane's first element of a row.
template <int kProducts>
__device__ __forceinline__ void add_columns(float (&sums)[kProducts][4]) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kProducts; ++n) sum += sums[n][2 * slot] + sums[n][2 * slot + 1];
    sums[0][2 * slot] = attention::quad_sum(sum);
  }
}

template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(config_of(kConfigIndex, Features::all).threads(), 1)
    bias_gradient_kernel(const __grid_constant__ Params p) {
  constexpr Config kConfig = config_of(kConfigIndex, Features::all);
  using S = Shape<kConfig>;
  const Tiles<kConfig, Element, Output::d_bias> tiles{ptx::dynamic_shared()};
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32, row = 16 * warp + lane / 4;
  const BiasTarget& target = p.d_bias;
  const bool sums_queries = target.extents[2] == 1, sums_keys = target.extents[3] == 1;
  const int q_tiles = (p.seqlen_q + kConfig.block_x() - 1) / kConfig.block_x();
  const int k_tiles = (p.seqlen_kv + kConfig.block_y - 1) / kConfig.block_y;
  auto place = static_cast<int>(ptx::block_index());
  const int own_k = sums_keys ? 0 : place % k_tiles;
  place /= sums_keys ? 1 : k_tiles;
  const int own_q = sums_queries ? 0 : place % q_tiles;
  place /= sums_queries ? 1 : q_tiles;
  const int own_head = place % target.extents[1], own_batch = place / target.extents[1];
  const Tiled batches = tiled(target.extents[0] == 1, own_batch, p.batch);
  const Tiled heads = tiled(target.extents[1] == 1, own_head, p.heads_q);
  const Tiled queries = tiled(sums_queries, own_q, q_tiles);
  const Tiled keys = tiled(sums_keys, own_k, k_tiles);
  const PhiloxKey key = p.dropout ? dropout_key_of(p) : PhiloxKey{};

  typename S::Scores sums;
  clear(sums);
#pragma unroll 1
  for (int batch = batches.begin; batch < batches.end; ++batch) {
    const attention::Entry entry = attention::find_entry(p, batch);
    const attention::BandLimits limits = limits_of<true>(p, entry);
#pragma unroll 1
    for (int head = heads.begin; head < heads.end; ++head) {
      const int kv_head = head / (p.heads_q / p.heads_kv);
      const ScoreTerms terms = score_terms(p, entry, batch, head);
#pragma unroll 1
      for (int q_tile = queries.begin; q_tile < queries.end; ++q_tile) {
        const int first = q_tile * kConfig.block_x();
        const attention::TileRange range = attention::tile_range(
            limits, entry.len_q, first, first + kConfig.block_x(), kConfig.block_y);
        const int begin = max(keys.begin, range.begin), end = min(keys.end, range.end);
        if (begin >= end) continue;
        tiles.load_x(p, entry, batch, head, first, thread);
        const LaneStats own = lane_stats(p, entry, batch, head, first + row);
        LanePlace lane_place{batch, head, first + row, 0};
#pragma unroll 1
        for (int tile = begin; tile < end; ++tile) {
          tiles.load_y(p, entry, batch, kv_head, tile * kConfig.block_y, 0, thread);
          ptx::cp_async_commit();
          ptx::cp_async_wait<0>();
          __syncthreads();
          typename S::Scores s, t;
          tiles.multiply(s, t, 0, false, warp, lane);
          lane_place.column = tile * kConfig.block_y + 2 * (lane % 4);
          weigh<true, Features::all>(
              s, t, p, terms, key, lane_place, limits, attention::kMostRows, true, false,
              [&](int, int e) { return own.rows[e / 2]; },
              [&](int n, int e, int query, int, bool, float ds) {
                sums[n][e] += query < entry.len_q ? ds : 0.0F;
              });
          __syncthreads();
        }
      }
    }
  }
  if (sums_queries)
    add_rows<kConfig>(sums, reinterpret_cast<float*>(ptx::dynamic_shared()), warp, lane);
  if (sums_keys) add_columns(sums);
  const int64_t origin = own_batch * target.batch + own_head * target.head;
#pragma unroll
  for (int n = 0; n < S::kProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = own_q * kConfig.block_x() + row + 8 * (e / 2);
      const int key_at = own_k * kConfig.block_y + 8 * n + 2 * (lane % 4) + e % 2;
      if (query >= target.extents[2] || key_at >= target.extents[3]) continue;
      store_element(target.type, target.data, origin + query * target.query + key_at * target.key,
                    sums[n][e]);
    }
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
