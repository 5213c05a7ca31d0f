// What backward_sm90_wide does by rows, before and after its blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact.cuh"
#include "cuda/backward_sm90/common/row_stats.cuh"
#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/params.hpp"

namespace flashcore::cuda::backward_sm90::wide {

constexpr int64_t all_rows(const Params& p) {
  return int64_t{p.batch} * p.heads_q * p.q_blocks * kBlockQ;
}

// Row statistics, one warp per query, and zeros in the marks.
template <class Element>
__global__ void __launch_bounds__(kRowThreads) begin_wide_kernel(const __grid_constant__ Params p) {
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  for (int64_t i = thread; i < p.blocks(); i += int64_t{gridDim.x} * kRowThreads) {
    p.not_finite[i] = 0;
  }
  const int64_t row = thread / kLanes;
  if (row >= all_rows(p)) return;
  write_row_stats<kLanes, Element>(p, row, kBlockQ, static_cast<int>(threadIdx.x % kLanes));
}

// A block for each block of the launch before, which does something where that left its mark.
template <class Element>
__global__ void __launch_bounds__(kRowThreads) end_wide_kernel(const __grid_constant__ Params p) {
  uint32_t index = blockIdx.x;
  if (p.not_finite[index] == 0) return;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  if (index < p.query_order.size()) {
    const attention::TileOrder::Place place = p.query_order.at(index);
    const auto batch_head = static_cast<int>(place.batch_head);
    const int first = static_cast<int>(place.q_tile) * kBlockQ;
    const int end = min(first + kBlockQ, p.seqlen_q);
    for (int query = first + warp; query < end; query += kRowWarps) {
      compute_query_exactly<kHeadDim, Element>(p, batch_head / p.heads_q, batch_head % p.heads_q,
                                               query, kBlockQ, lane);
    }
    return;
  }
  index -= p.query_order.size();
  const KeyTile place = key_tile(p.key_order, index);
  const int end = min((place.tile + 1) * kRows, p.seqlen_kv);
  for (int key = place.tile * kRows + warp; key < end; key += kRowWarps) {
    compute_key_exactly<kHeadDim, Element>(p, place.batch_head / p.heads_kv,
                                           place.batch_head % p.heads_kv, key, kBlockQ, lane);
  }
}

}  // namespace flashcore::cuda::backward_sm90::wide
