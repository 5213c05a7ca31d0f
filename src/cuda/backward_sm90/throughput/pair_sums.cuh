// dSinks and dSlopes of problems with pairs, from what rows and tiles add to them: always in the same order, a block
// for each. A term that is not finite is computed again, over visible pairs only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/block_sum.cuh"
#include "cuda/backward_sm90/common/exact.cuh"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/params.hpp"
#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

struct PairSumParts {
  double of[kRowThreads];
  bool is_wanted[kRowThreads];
};

// The sum over the block's threads.
__device__ __forceinline__ double block_sum(double own) {
  PairSumParts& parts = ptx::static_shared<PairSumParts>();
  const double sum = attention::block_sum(parts.of, own);
  __syncthreads();
  return sum;
}

// Returns whether a bias or a mask removes every pair of a query.
__device__ __forceinline__ bool is_removed(const PairParams& p, const EntryRows& rows, int batch,
                                           int head, int query) {
  const attention::ColumnRange seen = attention::visible_columns(rows.limits, query, 0);
  for (int key = max(seen.begin, 0); key < seen.end; ++key) {
    const PairPlace at{batch, head, query, key};
    const bool bias = p.pairs.bias.data != nullptr &&
                      bias_element(p.pairs, element_of(p.pairs.bias, at)) == attention::kNoKey;
    const auto* const mask = static_cast<const uint8_t*>(p.pairs.mask.data);
    if (!bias && (mask == nullptr || __ldg(mask + element_of(p.pairs.mask, at)) != 0)) return false;
  }
  return true;
}

// In a row that sees no key, only the LSE depends on the sink; its dO does not count.
template <class P>
__global__ void __launch_bounds__(kRowThreads)
    add_pair_sinks_kernel(const __grid_constant__ P p, int block_q) {
  const auto head = static_cast<int>(blockIdx.x);
  const int64_t head_rows = int64_t{p.q_blocks} * block_q;
  double total = 0;
  for (int batch = 0; batch < block_batch(p); ++batch) {
    const int batch_head = batch * p.heads_q + head;
    const float* const terms = p.options.sink_terms + batch_head * head_rows;
    for (auto row = static_cast<int>(threadIdx.x); row < head_rows; row += kRowThreads) {
      float term = terms[row];
      if (term * 0 != 0) {
        const EntryBlock block = query_block(p, batch_head, row / block_q, block_q);
        const EntryRows rows = entry_rows(p, block.entry, block_q);
        const int query = block.block * block_q + row % block_q;
        if (is_removed(p, rows, block.entry, head, query)) {
          term = p.d_lse == nullptr ? 0
                                    : p.d_lse[rows.batch * p.d_lse_batch + head * p.d_lse_head +
                                              (int64_t{rows.q_row} + query) * p.d_lse_row];
        }
      }
      total += static_cast<double>(term);
    }
  }
  const double sum = block_sum(total);
  if (threadIdx.x == 0) p.options.d_sinks[head * p.options.d_sink_head] = static_cast<float>(sum);
}

// A tile's term of a head, by all threads: a warp for each of its keys.
template <int kConfigIndex, class Element>
__device__ __forceinline__ double exact_distances(const PairParams& p, const EntryTask& task,
                                                  int entry, int head) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  using Row = ExactRow<kConfig.head_dim, Element>;
  const EntryRows& rows = task.rows;
  const ExactEntry<PairParams> exact{p, rows, kConfig.block_q, entry};
  const int64_t offset = attention::find_entry(p, entry).offset;
  const int end = min((task.tile + 1) * kBlockKeys, rows.limits.len_kv);
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  double sum = 0;
  for (int key = task.tile * kBlockKeys + warp; key < end; key += kRowWarps) {
    const attention::ColumnRange seen =
        attention::visible_columns(attention::seen_from_keys(rows.limits, rows.len_q), key, 0);
    Row k, v;
    k.load(p.k, rows.batch, task.kv_head, rows.kv_row + key, lane, p.head_dim_qk);
    v.load(p.v, rows.batch, task.kv_head, rows.kv_row + key, lane, p.head_dim_v);
    for (int query = max(seen.begin, 0); query < seen.end; ++query) {
      Row q, d_o;
      q.load(p.q, rows.batch, head, rows.q_row + query, lane, p.head_dim_qk);
      d_o.load(p.d_o, rows.batch, head, rows.q_row + query, lane, p.head_dim_v);
      const auto [removed, pair] =
          exact_weights(exact, {entry, head, query, key}, q.dot(k), d_o.dot(v));
      const int64_t distance = query + offset - key;
      if (!removed && lane == 0) {
        sum +=
            static_cast<double>(pair.ds) * static_cast<double>(distance < 0 ? -distance : distance);
      }
    }
  }
  return block_sum(sum);
}

// Two blocks per SM: ptxas goes for three by itself, and spills.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kRowThreads, 2)
    add_pair_slopes_kernel(const __grid_constant__ PairParams p) {
  PairSumParts& parts = ptx::static_shared<PairSumParts>();
  const auto head = static_cast<int>(blockIdx.x) % p.heads_q;
  const int batch = static_cast<int>(blockIdx.x) / p.heads_q, kv_head = head / p.group;
  const int64_t tiles = p.order.size();
  double total = 0;
  for (int64_t first = 0; first < tiles; first += kRowThreads) {
    const int64_t own = first + threadIdx.x;
    const bool is_own =
        own < tiles && p.tasks[own].kv_head == kv_head && !is_without_rows(p, p.tasks[own]) &&
        (!p.pairs.d_slopes_by_batch || entry_of_tile(p, static_cast<uint32_t>(own)) == batch);
    double term = 0;
    if (is_own) {
      const float* const of_warps =
          p.pairs.slope_terms + (own * p.group + head % p.group) * kConsumerWarps;
      for (int warp = 0; warp < kConsumerWarps; ++warp) term += static_cast<double>(of_warps[warp]);
    }
    parts.is_wanted[threadIdx.x] = term * 0 != 0;
    if (__syncthreads_or(static_cast<int>(term * 0 != 0)) != 0) {
      for (unsigned int i = 0; i < kRowThreads; ++i) {
        if (!parts.is_wanted[i]) continue;
        const int64_t index = first + i;
        const double exact = exact_distances<kConfigIndex, Element>(
            p, p.tasks[index], entry_of_tile(p, static_cast<uint32_t>(index)), head);
        if (threadIdx.x == i) term = exact;
      }
      __syncthreads();
    }
    total -= term;
  }
  const double sum = block_sum(total);
  if (threadIdx.x != 0) return;
  p.pairs.d_slopes[batch * p.pairs.d_slopes_batch + head * p.pairs.d_slopes_head] =
      static_cast<float>(sum);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
