// What backward_sm90_wide does by rows where a problem has options or a head dimension below 256.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact_options.cuh"
#include "cuda/backward_sm90/common/option_rows.cuh"
#include "cuda/backward_sm90/common/row_stats.cuh"
#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/params.hpp"

namespace flashcore::cuda::backward_sm90::wide {

constexpr int64_t all_rows(const OptionParams& p) {
  return int64_t{block_batch(p)} * p.heads_q * p.q_blocks * kBlockQ;
}

// As begin_wide_kernel.
template <class Element>
__global__ void __launch_bounds__(kRowThreads)
    begin_wide_options_kernel(const __grid_constant__ OptionParams p) {
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  for (int64_t i = thread; i < p.blocks(); i += int64_t{gridDim.x} * kRowThreads) {
    p.not_finite[i] = 0;
  }
  const int64_t row = thread / kLanes;
  if (row >= all_rows(p)) return;
  write_row_stats_of_entry<kLanes, Element>(p, p.options, row, kBlockQ,
                                            static_cast<int>(threadIdx.x % kLanes));
}

// As end_wide_kernel. A packed batch has its zeros already.
template <class Element>
__global__ void __launch_bounds__(kRowThreads)
    end_wide_options_kernel(const __grid_constant__ OptionParams p) {
  uint32_t index = blockIdx.x;
  if (p.not_finite[index] == 0) return;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const bool of_queries = index < p.query_order.size();
  EntryBlock block;
  if (of_queries) {
    const attention::TileOrder::Place place = p.query_order.at(index);
    block = query_block(p, place.batch_head * p.q_blocks + place.q_tile, kBlockQ);
  } else {
    index -= p.query_order.size();
    const KeyTile place = key_tile(p.key_order, index);
    block = key_block(p, place.batch_head, place.tile, kRows);
  }
  const EntryRows entry = entry_rows(p, p.options.band, block.entry, kBlockQ);
  const ExactEntry exact{p, p.options, entry, kBlockQ};
  if (of_queries) {
    const int first = block.block * kBlockQ;
    const int end = min(first + kBlockQ, is_packed(p) ? entry.len_q : p.seqlen_q);
    for (int query = first + warp; query < end; query += kRowWarps) {
      compute_entry_query<kHeadDim, Element>(exact, block.head, query, lane);
    }
    return;
  }
  const int end = min((block.block + 1) * kRows, is_packed(p) ? entry.limits.len_kv : p.seqlen_kv);
  for (int key = block.block * kRows + warp; key < end; key += kRowWarps) {
    compute_entry_key<kHeadDim, Element>(exact, block.head, key, lane);
  }
}

}  // namespace flashcore::cuda::backward_sm90::wide
