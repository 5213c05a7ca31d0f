// After a joint kernel: stores the sums of dQ.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/joint_sums.hpp"
#include "cuda/backward_sm80/general/joint_tile.cuh"
#include "cuda/backward_sm80/general/store.cuh"
#include "cuda/backward_sm80/general/task.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::backward_sm80::general {

// A block per tile of queries: sums of dQ to their places.
template <int kConfigIndex>
__global__ void __launch_bounds__(kRowThreads) store_dq_kernel(const __grid_constant__ Params p) {
  constexpr JointConfig kConfig = kJointConfigs[kConfigIndex];
  using Sums = JointSums<kConfig>;
  constexpr int kColumns = kConfig.head_dim / 8;
  const Task task = find_task<true>(p, p.by_joint_queries, ptx::block_index(), kConfig.block_q);
  const StoredRows rows = stored_rows<true>(p, task, p.dq);
  if (rows.stored <= 0) return;
  const int tile = task.first / kConfig.block_q;
  const bool any = !attention::tile_range(limits_of<true>(p, task.entry), task.entry.len_q,
                                          task.first, task.first + kConfig.block_q, kConfig.block_q)
                        .empty();
  const float* const sums =
      p.joint.dq_sums +
      joint_tile(p, task.entry, task.batch, task.head, kConfig.block_q, tile) * Sums::kTileElements;
  float zero = 0;  // or NaN
#pragma unroll 1
  for (int item = ptx::thread_index(); item < kConfig.block_q / 2 * kColumns; item += kRowThreads) {
    const int column = item % kColumns, row = item / kColumns % 8, row_tile = item / kColumns / 8;
    if (8 * column >= p.dq.columns) continue;
    float x[2][8] = {};
    if (any) {
      const float4* const from =
          reinterpret_cast<const float4*>(sums + Sums::product_offset(row_tile, column) + 16 * row);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const float4 four = from[pair];
        x[0][2 * pair] = four.x, x[0][2 * pair + 1] = four.y;
        x[1][2 * pair] = four.z, x[1][2 * pair + 1] = four.w;
      }
    }
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int at_row = 16 * row_tile + row + 8 * slot;
      if (at_row >= rows.stored) continue;
      const bool used = at_row < rows.used;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        x[slot][e] = used ? x[slot][e] * p.softmax_scale : 0;
        zero = fmaf(x[slot][e], 0, zero);
      }
      store_eight(p.dq, rows.first + at_row * p.dq.row + 8 * column, x[slot],
                  p.dq.columns - 8 * column);
    }
  }
  if (zero != 0) atomicExch(p.joint.not_finite, 1ULL);
}

}  // namespace flashcore::cuda::backward_sm80::general
