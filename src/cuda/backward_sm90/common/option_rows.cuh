// Kernels of problems with options that have nothing to do with their tiles: zeros in rows of a packed
// batch that have none, and dSinks from what each query adds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/block_sum.cuh"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/starts.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90 {
namespace {

// Returns whether no sequence has this row, or it lies past its sequence's length. Starts do not fall.
__device__ __forceinline__ bool is_hidden(const RowParams& p, const PackedGradient& gradient,
                                          int row) {
  const attention::EntryVector& starts = gradient.queries ? p.cu_seqlens_q : p.cu_seqlens_kv;
  const attention::Entry entry =
      attention::find_entry(p, attention::last_entry(row, p.batch, [&](int b) {
                              return int64_t{attention::clamped(starts.at(b), 0, gradient.rows)};
                            }));
  const int in_entry = row - (gradient.queries ? entry.q_row : entry.kv_row);
  return in_entry < 0 || in_entry >= (gradient.queries ? entry.len_q : entry.len_kv);
}

// Zeros in rows of packed gradients that no tile writes, by warps that have 32 rows in all heads each:
// which rows these are only the device knows. All are where starts fall.
__global__ void __launch_bounds__(kRowThreads)
    zero_hidden_rows_kernel(const __grid_constant__ RowParams p,
                            const __grid_constant__ PackedGradients gradients) {
  const PackedGradient& gradient = gradients.of[blockIdx.y];
  const bool all = do_starts_fall(p);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const int first =
      (static_cast<int>(blockIdx.x) * kRowThreads + static_cast<int>(threadIdx.x)) - lane;
  const int own = first + lane;
  uint32_t left =
      __ballot_sync(0xffffffffU, own < gradient.rows && (all || is_hidden(p, gradient, own)));
  for (; left != 0; left &= left - 1) {
    auto* const row = static_cast<uint16_t*>(gradient.target.data) +
                      (first + __ffs(static_cast<int>(left)) - 1) * gradient.target.row;
    for (int head = 0; head < gradient.heads; ++head) {
      for (int column = 8 * lane; column < gradient.columns; column += 8 * 32) {
        *reinterpret_cast<uint4*>(row + head * gradient.target.head + column) =
            make_uint4(0, 0, 0, 0);
      }
    }
  }
}

struct SinkParts {
  double of[kRowThreads];
};

// A block per head: the terms of its queries, always in the same order.
__global__ void __launch_bounds__(kRowThreads)
    add_sink_terms_kernel(const __grid_constant__ RowParams p,
                          const __grid_constant__ Options options, int block_q) {
  const auto head = static_cast<int>(blockIdx.x);
  const int64_t head_rows = int64_t{p.q_blocks} * block_q;
  double total = 0;
  for (int batch = 0; batch < (is_packed(p) ? 1 : p.batch); ++batch) {
    const float* const terms = options.sink_terms + (int64_t{batch} * p.heads_q + head) * head_rows;
    for (int64_t i = threadIdx.x; i < head_rows; i += kRowThreads) {
      total += static_cast<double>(terms[i]);
    }
  }
  SinkParts& parts = ptx::static_shared<SinkParts>();
  const double sum = attention::block_sum(parts.of, total);
  if (threadIdx.x == 0) options.d_sinks[head * options.d_sink_head] = static_cast<float>(sum);
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm90
