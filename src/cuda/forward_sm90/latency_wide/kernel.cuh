// forward_sm90_latency_wide: a cluster of two blocks computes 128 queries.
// It is for wide heads of problems that take forward_sm90_latency more
// than one wave: each load of either block reaches both.
//
//   two warpgroups   their tiles of 64 keys: S, exponentials, O += P V, alternating
//   first to end     its outputs go through shared memory to the second, which adds and stores them
//   the third        one warp per ring of tiles
#pragma once

#include "cuda/attention/warpgroup_element.cuh"
#include "cuda/forward_sm90/latency_wide/attend.cuh"
#include "cuda/forward_sm90/latency_wide/copies.cuh"
#include "cuda/forward_sm90/latency_wide/split.hpp"
#include "cuda/forward_sm90/latency_wide/store.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/sync.cuh"

namespace flashcore::cuda::forward_sm90::latency_wide {

using attention::warpgroup::Bf16, attention::warpgroup::Fp16;

// Returns the tiles that a block's queries see: 64 of the cluster's, from first_query on.
template <class S>
__device__ __forceinline__ TileRange span_of(const Task& task, const Early& early,
                                             int first_query) {
  if constexpr (S::kWhole) return task.tiles;
  if (S::kTileBounds == TileBounds::checked) {
    return attention::tile_range(task.limits, task.len_q, first_query, first_query + kRankQ,
                                 kBlockKv);
  }
  const int last_query = min(first_query + kRankQ, task.len_q);
  if (last_query <= first_query) return {};
  const auto tiles = static_cast<int>(static_cast<unsigned>(early.len_kv) / kBlockKv);
  return attention::latency::band_range(tiles, early.high, first_query, last_query);
}

template <class S>
__device__ __forceinline__ void compute(const Maps& maps, const Params& p) {
  auto& smem = *reinterpret_cast<typename S::Shared*>(ptx::dynamic_shared());
  const unsigned thread = threadIdx.x, its_warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const auto lane = static_cast<int>(thread % 32), warp = static_cast<int>(its_warp);
  const auto rank = static_cast<int>(blockIdx.x % kRanks);
  const auto group = static_cast<int>(its_warp / kGroupWarps);
  const auto in_group = static_cast<int>(its_warp % kGroupWarps);
  const Early early = read_early(p);
  const bool copies_ring = warp >= kWarps;
  if (lane == 0) {
    if (warp == 1) ptx::prefetch_tensor_map(&maps.v);
    if (warp == 0) Copies<S>::make_q(smem);
    if (copies_ring) Copies<S>::make_ring(smem, in_group);
  }
  __syncwarp();
  // Earlier grids may write the lengths.
  if (S::kTileBounds == TileBounds::checked && p.varies) ptx::wait_for_earlier_grids();
  const Task task = find_task<S::kTileBounds, kBlockQ, kRanks>(p, early);
  if (S::kTileBounds == TileBounds::checked && !task.exists())
    return;  // for both blocks of the cluster
  const Copies<S> copies{smem, maps, task, rank};
  if (copies_ring) {
    ptx::release_registers<kCopyRegisters>();
    const int ring = in_group, count = tiles_of(task.tiles.size(), ring / 2, kGroups);
    const int first = ring == 0 ? 1 : 0;
    if (lane == 0) {
      ptx::wait_for_earlier_grids();
      if (first != 0 && count > 0) copies.start_first_k(ring);
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::start_next_grid();
    ptx::cluster_wait();  // the other block runs and has initialised its barriers
    if (lane == 0) copies.run(ring, first, count);
    return;
  }
  Task own_task = task;
  own_task.first_query += rank * kRankQ;
  own_task.tiles = span_of<S>(task, early, own_task.first_query);
  if (warp == 0 && lane == 0) {
    ptx::wait_for_earlier_grids();
    // Only if the block waits for it: a block must not exit before its copies have arrived.
    if (S::kWhole || own_task.tiles.size() > 0) copies.start_q(own_task.first_query);
  }
  __syncwarp();
  ptx::cluster_arrive_relaxed();
  ptx::start_next_grid();
  ptx::acquire_registers<kComputeRegisters>();
  ptx::cluster_wait();
  OwnTiles owns[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) owns[g] = own_tiles(own_task.tiles, task.tiles, g);
  // The warpgroup that sees fewer tiles ends first; if both see equally many, the one with the first turn.
  const int sender = owns[0].size() > owns[1].size() ? 1 : 0;
  const Places places = find_places<S>(p, own_task, in_group, lane);
  const Attention<S> attention{{own_task, p.scale_log2, in_group, lane},
                               smem,
                               copies,
                               group,
                               tiles_of(task.tiles.size(), group, kGroups),
                               group == 0 ? owns[0] : owns[1]};
  const Store<S> store{smem, p, own_task, places, sender, in_group, lane};
  Partial<S> w;
  attention.run(w, max(owns[0].size(), owns[1].size()));
  attention.skip_rest(w);
  if (group == sender) {
    ptx::named_barrier_sync(kScored, 32 * kGroupWarps);  // nothing reads its K any more
    attention.finish(w);
    store.send(w);
    return;
  }
  float its[S::kOutProducts][4], weight[2], lse[2];
  store.receive(w, its, weight, lse);
  attention.finish(w);
  store.store(w, its, weight, lse);
}

template <class Element, TileBounds kTileBounds>
__global__ void __cluster_dims__(kRanks, 1, 1) __launch_bounds__(kThreads, 1)
    forward_latency_wide_kernel(const __grid_constant__ Params p,
                                const __grid_constant__ Maps maps) {
  if constexpr (ptx::kHasWgmma) latency_wide::compute<Shape<Element, kTileBounds>>(maps, p);
}

}  // namespace flashcore::cuda::forward_sm90::latency_wide
