// What backward_sm90_wide does by rows, before and after its blocks. With options (OptionParams) for
// problems that have some, or a head dimension below 256.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact.cuh"
#include "cuda/backward_sm90/common/row_stats.cuh"
#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/params.hpp"

namespace flashcore::cuda::backward_sm90::wide {

// Row statistics, one warp per query, and zeros in the marks.
template <class Element, class P>
__global__ void __launch_bounds__(kRowThreads) begin_wide_kernel(const __grid_constant__ P p) {
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  for (int64_t i = thread; i < p.blocks(); i += int64_t{gridDim.x} * kRowThreads) {
    p.not_finite[i] = 0;
  }
  const int64_t row = thread / kLanes;
  if (row >= int64_t{block_batch(p)} * p.heads_q * p.q_blocks * kBlockQ) return;
  write_row_stats<kLanes, Element>(p, row, kBlockQ, static_cast<int>(threadIdx.x % kLanes));
}

// A block for each block of the launch before, which does something where that left its mark. A packed
// batch has its zeros already.
template <class Element, class P>
__global__ void __launch_bounds__(kRowThreads) end_wide_kernel(const __grid_constant__ P p) {
  uint32_t index = blockIdx.x;
  if (p.not_finite[index] == 0) return;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const bool of_queries = index < p.query_order.size();
  EntryBlock block;
  if (of_queries) {
    const attention::TileOrder::Place place = p.query_order.at(index);
    block =
        query_block(p, static_cast<int>(place.batch_head), static_cast<int>(place.q_tile), kBlockQ);
  } else {
    index -= p.query_order.size();
    const KeyTile place = key_tile(p.key_order, index);
    block = key_block(p, place.batch_head, place.tile, kRows);
  }
  const EntryRows entry = entry_rows(p, block.entry, kBlockQ);
  const ExactEntry<P> exact{p, entry, kBlockQ};
  if (of_queries) {
    const int first = block.block * kBlockQ;
    const int end = min(first + kBlockQ, has_packed(p) ? entry.len_q : p.seqlen_q);
    for (int query = first + warp; query < end; query += kRowWarps) {
      compute_query_exactly<kHeadDim, Element>(exact, block.head, query, lane);
    }
    return;
  }
  const int end = min((block.block + 1) * kRows, has_packed(p) ? entry.limits.len_kv : p.seqlen_kv);
  for (int key = block.block * kRows + warp; key < end; key += kRowWarps) {
    compute_key_exactly<kHeadDim, Element>(exact, block.head, key, lane);
  }
}

}  // namespace flashcore::cuda::backward_sm90::wide
