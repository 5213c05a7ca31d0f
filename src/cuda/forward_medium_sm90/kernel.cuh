// forward_small_sm90 where blocks would not all run at once: a block of 128 queries, two
// warpgroups of 64, reads every tile of keys once for both.
#pragma once

#include "cuda/forward_medium_sm90/attend.cuh"
#include "cuda/forward_medium_sm90/copies.cuh"
#include "cuda/forward_medium_sm90/store.cuh"
#include "cuda/forward_small_sm90/element.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/log2.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::Early;
using forward_small_sm90::TileSpan, forward_small_sm90::tile_span, forward_small_sm90::tiles_of;

// What one warpgroup sees of its block's tiles: numbers [first, last), and the tiles that need a
// mask.
struct OwnTiles {
  int first, last;
  TileSpan span;
};

template <class S>
__device__ __forceinline__ OwnTiles own_tiles(const Task& task, int group, int rank, int count) {
  if (S::kWhole) return {0, count, task.tiles};
  const int first_query = task.first_query + group * kGroupQ;
  const TileSpan span = tile_span(task.limits, first_query, min(first_query + kGroupQ, task.len_q));
  if (span.size() == 0) return {0, 0, span};
  return {tiles_of(span.begin - task.tiles.begin, rank, S::kRanks),
          tiles_of(span.end - task.tiles.begin, rank, S::kRanks), span};
}

template <class S>
__device__ __forceinline__ void compute(const Maps& maps, const Params& p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& smem = *reinterpret_cast<typename S::Shared*>(memory);
  const unsigned thread = threadIdx.x, its_warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const auto lane = static_cast<int>(thread % 32), warp = static_cast<int>(its_warp);
  const auto rank = static_cast<int>(blockIdx.x % S::kRanks);
  const auto group = static_cast<int>(its_warp / kGroupWarps);
  const auto in_group = static_cast<int>(its_warp % kGroupWarps);
  const Early early = read_early(p);
  if (lane == 0) {
    if (warp == 5) ptx::prefetch_tensor_map(&maps.k);
    if (warp == 6) ptx::prefetch_tensor_map(&maps.v);
    Copies<S>::make_barriers(smem, warp);
  }
  __syncwarp();
  if (!S::kWhole && p.varies) ptx::wait_for_earlier_grids();  // they may write the lengths
  const Task task = forward_small_sm90::find_task<S::kWhole, kBlockQ, S::kRanks>(p, early);
  if (!S::kWhole && !task.exists()) return;  // all blocks of the cluster
  const int count = tiles_of(task.tiles.size(), rank, S::kRanks);
  const Copies<S> copies{smem, maps, task, rank, warp, count};
  const OwnTiles own0 = own_tiles<S>(task, 0, rank, count),
                 own1 = own_tiles<S>(task, 1, rank, count);
  if (lane == 0) {
    ptx::wait_for_earlier_grids();
    copies.start_first(own0.first < own0.last, own1.first < own1.last);
  }
  __syncwarp();
  if (S::kRanks > 1) ptx::cluster_arrive_relaxed();
  ptx::start_next_grid();
  __syncthreads();
  if (lane == 0) copies.start_rest();
  __syncwarp();
  if (S::kRanks > 1) ptx::cluster_wait();  // the other block runs and has made its barriers
  Task own_task = task;
  own_task.first_query += group * kGroupQ;
  const OwnTiles own = group == 0 ? own0 : own1;
  own_task.tiles = own.span;
  const Places places = find_places<S>(smem, p, own_task, rank, group, in_group, lane);
  const Attention<S> attention{
      {own_task, p.scale_log2, in_group, lane}, smem, copies, group, own.first, own.last};
  const Store<S> store{smem, p, own_task, places, rank, group, in_group, lane};
  Partial<S> w;
  float weight[2], lse[2];
  attention.run(w);
  store.weigh(w, weight, lse);
  attention.finish(w);
  store.run(w, weight, lse);
}

// By index: nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, bool kWhole>
__global__ void __cluster_dims__(kConfigs[kConfigIndex].ranks, 1, 1) __launch_bounds__(kThreads, 1)
    forward_medium_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  if constexpr (ptx::kHasWgmma)
    forward_medium_sm90::compute<Shape<kConfigIndex, Element, kWhole>>(maps, p);
}

}  // namespace flashcore::cuda::forward_medium_sm90
