// forward_sm90_latency: a cluster of two blocks computes 64 queries, for problems that do not fill
// the GPU. Everything is loaded at once and merged once; the time is latency, not throughput.
//
//   a warp   own barriers | its share of the copies of Q, K | all barriers | of V |
//            wait | S, exponentials, O of the own keys | add up, exchange halves | store |
#pragma once

#include "cuda/attention/warpgroup_element.cuh"
#include "cuda/forward_sm90/common/maps.hpp"
#include "cuda/forward_sm90/latency/attend.cuh"
#include "cuda/forward_sm90/latency/copies.cuh"
#include "cuda/forward_sm90/latency/merge.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_sm90::latency {

using attention::warpgroup::Bf16, attention::warpgroup::Fp16;

template <class S>
__device__ __forceinline__ void compute(const Maps& maps, const Params& p) {
  auto& smem = *reinterpret_cast<typename S::Shared*>(ptx::dynamic_shared());
  const unsigned thread = threadIdx.x, its_warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const auto lane = static_cast<int>(thread % 32), warp = static_cast<int>(its_warp);
  const auto rank = static_cast<int>(blockIdx.x % S::kRanks);
  const auto group = static_cast<int>(its_warp / kGroupWarps);
  const auto in_group = static_cast<int>(its_warp % kGroupWarps);
  const Early early = read_early(p);
  if (lane == 0) {
    Copies<S>::prefetch_maps(maps, warp);
    Copies<S>::make_barriers(smem, warp);
  }
  __syncwarp();
  if (S::kTileBounds == TileBounds::checked && p.varies)
    ptx::wait_for_earlier_grids();  // they may write the lengths
  const Task task = find_task<S::kTileBounds, kBlockQ, S::kRanks>(p, early);
  if (S::kTileBounds == TileBounds::checked && !task.exists())
    return;  // for both blocks of the cluster
  const Copies<S> copies{smem, maps, task, rank, warp};
  if (lane == 0) {
    ptx::wait_for_earlier_grids();
    copies.start_first();
  }
  __syncwarp();
  if (S::kRanks > 1) ptx::cluster_arrive_relaxed();
  ptx::start_next_grid();
  __syncthreads();
  if (lane == 0) copies.start_second();
  __syncwarp();
  if (S::kRanks > 1) ptx::cluster_wait();  // the other block runs and has initialised its barriers
  const int part = S::part_of(rank, group);
  const int tiles = tiles_of(task.tiles.size(), part, S::kParts);
  const Places places = find_places<S>(p, task, rank, group, in_group, lane);
  const auto ways = Merge<S>::find_ways(smem, rank, group, in_group, lane);
  Partial<S> w;
  const Attention<S> attention{{task, p.scale_log2, in_group, lane}, smem, copies, part, group};
  attention.run(w, tiles);
  Merge<S> merge{{smem, p, task, places, rank, group, in_group, lane}, ways};
  merge.announce(w, p.scale_log2);
  ptx::warpgroup_wait<0>();
  ptx::warpgroup_pin(w.o);
  merge.run(w);
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, TileBounds kTileBounds>
__global__ void __cluster_dims__(kConfigs[kConfigIndex].ranks, 1,
                                 1) __launch_bounds__(kThreads, kConfigs[kConfigIndex].blocks)
    forward_latency_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  if constexpr (ptx::kHasWgmma)
    latency::compute<Shape<kConfigIndex, Element, kTileBounds>>(maps, p);
}

}  // namespace flashcore::cuda::forward_sm90::latency
