// forward_medium_sm90: a cluster of two blocks computes 128 queries. For wide heads of problems
// that would take forward_small_sm90 more than one wave: every tile of keys is read once for 128
// queries and not for 64, as what blocks wait for is the way from L2.
#pragma once

#include "cuda/forward_medium_sm90/attend.cuh"
#include "cuda/forward_medium_sm90/copies.cuh"
#include "cuda/forward_medium_sm90/split.hpp"
#include "cuda/forward_medium_sm90/store.cuh"
#include "cuda/forward_small_sm90/element.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/log2.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

using forward_small_sm90::Early;

template <class S>
__device__ __forceinline__ void compute(const Maps& maps, const Params& p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& smem = *reinterpret_cast<typename S::Shared*>(memory);
  const unsigned thread = threadIdx.x, its_warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const auto lane = static_cast<int>(thread % 32), warp = static_cast<int>(its_warp);
  const auto rank = static_cast<int>(blockIdx.x % kRanks);
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
  const Task task = forward_small_sm90::find_task<S::kWhole, kBlockQ, kRanks>(p, early);
  if (!S::kWhole && !task.exists()) return;  // both blocks of the cluster
  const int count = tiles_of(task.tiles.size(), rank, kRanks);
  const Copies<S> copies{smem, maps, task, rank, warp, count};
  OwnTiles owns[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    owns[g] = S::kWhole ? OwnTiles{0, count, task.tiles}
                        : own_tiles(task.limits, task.tiles, task.first_query + g * kGroupQ,
                                    task.len_q, rank);
  }
  if (lane == 0) {
    ptx::wait_for_earlier_grids();
    copies.start_first(owns[0].first < owns[0].last, owns[1].first < owns[1].last);
  }
  __syncwarp();
  ptx::cluster_arrive_relaxed();
  ptx::start_next_grid();
  __syncthreads();
  if (lane == 0) copies.start_second();
  __syncwarp();
  ptx::cluster_wait();  // the other block runs and has made its barriers
  Task own_task = task;
  own_task.first_query += group * kGroupQ;
  const OwnTiles own = group == 0 ? owns[0] : owns[1];
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

template <class Element, bool kWhole>
__global__ void __cluster_dims__(kRanks, 1, 1) __launch_bounds__(kThreads, 1)
    forward_medium_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  if constexpr (ptx::kHasWgmma) forward_medium_sm90::compute<Shape<Element, kWhole>>(maps, p);
}

}  // namespace flashcore::cuda::forward_medium_sm90
