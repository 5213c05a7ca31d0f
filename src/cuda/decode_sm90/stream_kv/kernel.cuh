// decode_sm90: each block computes its share of the keys of a batch (walk.cuh), each
// warp every eighth KV tile of it (ring.cuh, attend.cuh). Whole items become rows of O
// at once; parts at the ends of shares are written to memory, where join.cuh joins them.
#pragma once

#include <cstdint>

#include "cuda/decode_sm90/stream_kv/attend.cuh"
#include "cuda/decode_sm90/stream_kv/finish.cuh"
#include "cuda/decode_sm90/stream_kv/ring.cuh"
#include "cuda/decode_sm90/stream_kv/walk.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

template <Config kConfig>
__device__ __forceinline__ Stages<kConfig> stages_of(unsigned char* shared, int warp) {
  struct Barriers {
    uint64_t of[kWarps][kConfig.stages];
  };
  auto* const scales = reinterpret_cast<float*>(shared + kConfig.ring_bytes());
  return {shared + warp * kConfig.warp_ring_bytes(), scales + warp * kConfig.warp_scales(),
          ptx::shared_address(ptx::static_shared<Barriers>().of[warp])};
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].bounded_threads(), 1)
    decode_stream_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  unsigned char* const shared = ptx::dynamic_shared();
  auto* const outputs =
      reinterpret_cast<float*>(shared + kConfig.ring_bytes() + kConfig.scale_bytes());
  auto& rows = ptx::static_shared<WarpRows<kConfig>>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;

  if (threadIdx.x == kThreads - 1 && p.boxes > 0) {  // in a warp other than the busiest one
    ptx::prefetch_tensor_map(&maps.k);
    ptx::prefetch_tensor_map(&maps.v);
  }
  const Stages<kConfig> stages = stages_of<kConfig>(shared, warp);
  stages.begin(p, lane);
  ptx::wait_for_earlier_grids();
  ptx::start_next_grid();  // that grid reads only results of earlier grids before it waits
  WorkList& list = this_work_list();
  sum_costs(p, list);
  const Walk<kConfig.rows()> walk(p, list);
  if (warp == 0) walk.begin(lane);

  Query<kConfig> query;
  Producer<kConfig> producer(p, maps, stages, list, warp, lane);
  int stage = 0;
  uint32_t parity = 0;
  // Round n: unit n is found, so that copies can continue into it, and unit n - 1 is computed.
#pragma unroll 1
  for (int n = 0;; ++n) {
    if (warp == 0) walk.find_next(n, lane);
    __syncthreads();  // unit n is found, and the outputs before have been read
    const Unit& next = list.unit(n);
    const bool more = next.rows > 0;
    if (n == 0) {
      if (!more) return;
      // Before the copies, which would delay it.
      Warp<kConfig, Element>{p, next, stages, lane}.load_query(query);
      producer.begin();
      continue;
    }
    const Unit& unit = list.unit(n - 1);
    const Warp<kConfig, Element> math{p, unit, stages, lane};
    Accumulators<kConfig> sums;
    math.begin(sums);
#pragma unroll 1
    for (int key = first_key<kConfig>(p, unit, warp), end = unit.end;; key += kStep<kConfig>) {
      producer.fill(more ? n : n - 1);
      if (key >= end) break;
      ptx::mbarrier_wait_together(stages.barrier(stage), parity);
      math.process_tile(sums, query, stage, key);
      __syncwarp();  // the stage has been read
      producer.release();
      if (++stage == kConfig.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    finish<kConfig, Warp<kConfig, Element>::kSumsRounded>(
        sums, outputs + warp * kConfig.rows() * kConfig.output_row(), rows, warp, lane);
    __syncthreads();
    if (more) Warp<kConfig, Element>{p, next, stages, lane}.load_query(query);
    store_unit<kConfig>(p, unit, outputs, rows);
    if (!more) return;
  }
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
