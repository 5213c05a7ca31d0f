// forward_fp8_sm89: one block per query tile, on cp.async, ldmatrix and mma.sync
// m16n8k32 of e4m3 (sm_89). V is read as stored, and transposed on its way to registers.
//
//   find the tile | attend to its keys | store | (rows again, exactly)
#pragma once

#include "cuda/forward_fp8_sm89/throughput/attend.cuh"
#include "cuda/forward_fp8_sm89/throughput/epilogue.cuh"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

template <class S>
__device__ __forceinline__ void find_work(const Params& p, typename S::Work& work) {
  const Task task = find_task(p, blockIdx.x, S::kBlockKv);
  work.task = task;
  work.cap = {0, 0, 0};
  if (task.first_query >= task.rows_q) return;
  work.scale = score_scale(p, task, kLog2E);
  if (p.cap > 0) {
    const float natural = score_scale(p, task, 1);
    work.cap = {finite_of(natural / p.cap, natural), finite_of(work.scale, natural), p.cap_log2};
    work.scale = 1;
  }
}

template <class S>
__device__ __forceinline__ void run_block(const Params& p) {
  auto& smem = *reinterpret_cast<typename S::Shared*>(ptx::dynamic_shared());
  if (threadIdx.x == 0) find_work<S>(p, smem.work);
  __syncthreads();
  const Task& task = smem.work.task;
  if (task.first_query >= task.rows_q) return;
  // References are largest products.
  if (p.by_rows || (!task.tiles.empty() && !(smem.work.scale > 0))) {
    compute_rows_exactly<S>(p, task, warp_row(), lane_index());
    return;
  }
  Rows<S> rows;
  attend<S>(p, smem, rows);
  store_rows<S>(p, task, rows);
}

// Sets the register limit. On Hopper, which need not be fast, operands take more registers.
constexpr int blocks_per_sm(const Config& config) {
  return ptx::kMultipliesE4m3 ? config.blocks_per_sm : 1;
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex>
__global__ void __launch_bounds__(kThreads, blocks_per_sm(kConfigs[kConfigIndex]))
    forward_kernel(const __grid_constant__ Params p) {
  if constexpr (ptx::kHasE4m3Products) run_block<Shape<kConfigIndex>>(p);
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
