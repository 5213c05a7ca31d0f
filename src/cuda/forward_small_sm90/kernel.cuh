// forward_small_sm90: a cluster of two blocks computes 64 queries, for problems that do not fill
// the machine. Everything is loaded at once and merged once; time is latency, not throughput.
//
//   producer    barriers | Q, K ... | V ... | (slots that come free) |
//   consumers   wait | S, exponentials, O of the own keys | exchange quarters | store |
#pragma once

#include "cuda/forward_small_sm90/attend.cuh"
#include "cuda/forward_small_sm90/element.cuh"
#include "cuda/forward_small_sm90/merge.cuh"
#include "cuda/forward_small_sm90/producer.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_small_sm90 {

// What a warp does once: barriers for messages, and fetching tensor maps, each by a lane of its
// own.
template <class S>
__device__ __forceinline__ void prepare(typename S::Shared& smem, const Maps& maps, bool has_keys,
                                        int warp, int lane) {
  if (lane != 0) return;
  if (warp == 1 && has_keys) ptx::prefetch_tensor_map(&maps.k);
  if (warp == 2 && has_keys) ptx::prefetch_tensor_map(&maps.v);
  if (warp != kGroupWarps) return;
  constexpr uint32_t kBytes = kGroups * kGroupWarps * S::kConfig.message_bytes();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    ptx::mbarrier_init(ptx::shared_address(&smem.messages[g]), 1);
  }
  ptx::publish_barriers();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    ptx::mbarrier_arrive_expect(ptx::shared_address(&smem.messages[g]), kBytes);
  }
}

template <class S>
__device__ __forceinline__ void compute(const Maps& maps, const Params& p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& smem = *reinterpret_cast<typename S::Shared*>(memory);
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = __shfl_sync(0xffffffffU, thread / 32, 0);
  const auto rank = static_cast<int>(blockIdx.x) % kRanks;

  if (!S::kWhole && p.varies && p.early)
    ptx::wait_for_earlier_grids();  // they may write the lengths
  const Task task = find_task<!S::kWhole>(p);
  if (!task.exists()) return;  // both blocks of the cluster

  if (warp == kConsumers / 32) {
    Producer<S>(smem, maps, task, rank, p.early).run(lane);
    return;
  }
  prepare<S>(smem, maps, task.tiles.size() > 0, warp, lane);
  __syncwarp();
  if (p.early) ptx::start_next_grid();
  ptx::cluster_arrive_relaxed();
  ptx::named_barrier_sync(kReady, kThreads);

  const int group = warp / kGroupWarps, in_group = warp % kGroupWarps;
  const int part = part_of(rank, group), tiles = tiles_of(task.tiles.size(), part);
  // Without keys nothing below waits for a copy, and so for the producer's wait.
  if (p.early && tiles == 0) ptx::wait_for_earlier_grids();
  const Places places = find_places(p, task, rank, group, in_group, lane, S::kHeadDim / 2);
  Partial<S> w;
  Attention<S>{smem, task, p.scale_log2, part, group, in_group, lane}.run(w, tiles);

  float inverse[2], lse[2];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const float sum = attention::quad_sum(w.sums[row][0] + w.sums[row][1]);
    inverse[row] = sum == 0 ? 0.0F : __fdividef(1.0F, sum);
    lse[row] = fmaf(w.max[row], p.scale_log2, __log2f(sum));  // -inf for a row without a key
  }
  ptx::cluster_wait();  // the other block runs and has made its barriers; long since true
  ptx::warpgroup_wait<0>();
  ptx::warpgroup_pin(w.o);
  Merge<S>{smem, p, task, places, rank, group, in_group, lane}.run(w, inverse, lse);
}

// By index: nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element, bool kWhole>
__global__ void __launch_bounds__(kThreads, 1)
    forward_small_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Params p) {
  if constexpr (ptx::kHasWgmma) compute<Shape<kConfigIndex, Element, kWhole>>(maps, p);
}

}  // namespace flashcore::cuda::forward_small_sm90
