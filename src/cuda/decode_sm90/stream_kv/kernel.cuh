// decode_sm90: each block computes its share of the keys of a batch (walk.cuh), each warp every
// eighth tile of them (ring.cuh, attend.cuh). Whole items become rows of O at once; the parts at the
// ends of shares go to memory, where join.cu makes rows of them.
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

// What join.cu has to know of the line.
__device__ __forceinline__ void leave_line(const Params& p, const Line& line) {
  if (blockIdx.x != 0 || blockIdx.y != 0) return;
  for (int b = static_cast<int>(threadIdx.x); b < p.batch; b += kThreads) {
    p.first_granules[b] = line.first[b];
  }
  if (threadIdx.x == 0) *p.share_granules = share_granules(p, line);
}

template <Config kConfig>
__device__ __forceinline__ Stages<kConfig> stages_of(unsigned char* shared, int warp) {
  struct Barriers {
    uint64_t of[kWarps][kConfig.stages];
  };
  auto* const scales = reinterpret_cast<float*>(shared + kConfig.ring_bytes());
  return {shared + warp * kConfig.warp_ring_bytes(), scales + warp * kConfig.warp_scales(),
          ptx::shared_address(ptx::static_shared<Barriers>().of[warp])};
}

// By index: nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].bounded_threads(), 1)
    decode_stream_kernel(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  unsigned char* const shared = ptx::dynamic_shared();
  auto* const outputs =
      reinterpret_cast<float*>(shared + kConfig.ring_bytes() + kConfig.scale_bytes());
  auto& rows = ptx::static_shared<WarpRows<kConfig>>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;

  ptx::start_next_grid();
  if (threadIdx.x == 0 && p.boxes > 0) {
    ptx::prefetch_tensor_map(&maps.k);
    ptx::prefetch_tensor_map(&maps.v);
  }
  const Stages<kConfig> stages = stages_of<kConfig>(shared, warp);
  stages.begin(p, lane);
  Line& line = this_line();
  count_granules(p, line);
  Walk<kConfig.rows()> walk(p, line);
  leave_line(p, line);

  Unit unit;
  const Warp<kConfig, Element> math{p, unit, stages, lane};
  Query<kConfig> query;
  bool more = walk.take(unit);
  if (!more) return;
  math.load_query(query);  // before the copies, which would keep it waiting
  Producer<kConfig> producer(p, maps, stages, walk, unit, warp, lane);
#pragma unroll 1
  for (int stage = 0; stage < kConfig.stages; ++stage) producer.load(stage);

  int stage = 0;
  uint32_t parity = 0;
  while (more) {
    Found<kConfig> found;
    math.begin(found);
#pragma unroll 1
    for (int key = first_key<kConfig>(p, unit, warp); key < unit.end; key += kStep<kConfig>) {
      ptx::mbarrier_wait_together(stages.barrier(stage), parity);
      if constexpr (kConfig.kv_bytes == 1) __syncwarp();  // scales are there
      math.step(found, query, stage, key);
      __syncwarp();  // the stage has been read
      producer.load(stage);
      if (++stage == kConfig.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    __syncthreads();  // the outputs before have been read
    leave<kConfig>(found, outputs + warp * kConfig.rows() * kConfig.output_row(), rows, warp, lane);
    __syncthreads();
    const Unit ended = unit;
    more = walk.take(unit);
    if (more) math.load_query(query);
    store_unit<kConfig>(p, ended, outputs, rows);
  }
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
