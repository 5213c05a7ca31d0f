// The second kernel of a split problem: it combines the partial results of a row's splits into O and LSE.
//
// One warp per row. Splits are added in the order of their keys, and a lane's part of
// the sum does not depend on other rows: the same row has the same bits in every batch.
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/epilogue.cuh"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

constexpr int kLaneColumns = kLargestHeadDim / 32;

__device__ float weight_of(float reference, float largest, float unit) {
  return attention::split_weight(reference, largest, unit,
                                 [](float x) { return ptx::exp2_approx(x); });
}

__device__ int64_t partial_row_count(const Params& p) {
  const int64_t rows = p.cu_seqlens_q.data != nullptr ? p.total_q : int64_t{p.batch} * p.seqlen_q;
  return rows * p.heads_q;
}

// Finds the task and the query of a row of the partial results: the inverse of partial_row().
__device__ int find_row(const Params& p, int64_t index, Task& task) {
  const bool packed = p.cu_seqlens_q.data != nullptr;
  const int64_t rows = packed ? p.total_q : p.seqlen_q;
  const int64_t batch_head = index / rows;
  auto row = static_cast<int>(index - batch_head * rows);
  if (packed) {
    task.head = static_cast<int>(batch_head);
    task.batch = attention::last_entry(row, p.batch, [&](int b) {
      return attention::clamped(p.cu_seqlens_q.at(b), 0, p.total_q);
    });
  } else {
    task.batch = static_cast<int>(batch_head / p.heads_q);
    task.head = static_cast<int>(batch_head - int64_t{task.batch} * p.heads_q);
  }
  task.sequence = find_sequence(p, task.batch);
  return packed ? row - static_cast<int>(task.sequence.q_begin) : row;
}

__global__ void __launch_bounds__(32 * kCombineRows)
    combine_kernel(const __grid_constant__ Params p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t index = int64_t{blockIdx.x} * kCombineRows + threadIdx.x / 32;
  if (index >= partial_row_count(p)) return;
  Task task{};
  const int row = find_row(p, index, task);
  if (row < 0 || row >= task.sequence.rows_q) return;

  const bool in_use = row < task.sequence.len_q && task.sequence.len_kv > 0;
  const int splits = in_use ? static_cast<int>(split_count(task.sequence.len_kv)) : 0;
  const float2* const parts = p.partial_rows + index * p.splits;
  float largest = kNoKey;
  for (int i = lane; i < splits; i += 32) largest = fmaxf(largest, parts[i].x);
  largest = attention::warp_max(largest);
  float sum = 0;
  for (int i = lane; i < splits; i += 32) {
    sum += parts[i].y * weight_of(parts[i].x, largest, p.score_unit_log2);
  }
  sum = attention::warp_sum(sum);

  float o[kLaneColumns] = {};
  const float* partial = p.partial_o + index * p.splits * p.head_dim_v;
#pragma unroll 4
  for (int i = 0; i < splits; ++i, partial += p.head_dim_v) {
    const float weight = weight_of(parts[i].x, largest, p.score_unit_log2);
#pragma unroll
    for (int c = 0; c < kLaneColumns; ++c) {
      const int column = lane + 32 * c;
      if (column >= p.head_dim_v) continue;
      o[c] = attention::with_part(o[c], weight, partial[column]);
    }
  }

  const bool empty = sum == 0;  // a NaN sum is not empty
  // Adds the sink, in natural units.
  const float sink = p.sinks.data == nullptr ? kNoKey : p.sinks.data[task.head * p.sinks.head];
  const float reference = largest * p.score_unit, top = fmaxf(reference, sink);
  const float share = ptx::exp2_approx((reference - top) * kLog2E);
  sum = sum * share + (sink == kNoKey ? 0.0F : ptx::exp2_approx((sink - top) * kLog2E));
  const float factor = __fdividef(share, sum) * (p.dropout ? p.dropout_rescale : 1.0F);
  const int64_t first = o_offset(p, task, row);
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    const int column = lane + 32 * c;
    if (column >= p.head_dim_v) continue;
    store_as(p.o_type, p.o, first + column, empty ? 0.0F : o[c] * factor);
  }
  if (p.lse != nullptr && lane == 0) {
    p.lse[task.batch * p.lse_batch + task.head * p.lse_head +
          (task.sequence.q_begin + row) * p.lse_row] = empty ? sink : top + __log2f(sum) * kLn2;
  }
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm80::throughput
