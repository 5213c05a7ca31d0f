// The row statistics of a query: -LSE log2(e) and delta, the sum of O dO less dLSE.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::backward_sm90 {

// What a lane has of the product of two rows, its columns from `o` and `d_o` on.
template <class Element>
__device__ __forceinline__ float lane_dot(const uint16_t* o, const uint16_t* d_o) {
  const uint4 x = *reinterpret_cast<const uint4*>(o), y = *reinterpret_cast<const uint4*>(d_o);
  const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = Element::unpack(xs[i]), b = Element::unpack(ys[i]);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
  }
  return sum;
}

// Sums over kLanes adjacent lanes; all of them get the sum.
template <int kLanes>
__device__ __forceinline__ float lanes_sum(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

// Writes the statistics of query `row`, counted over all blocks of block_q queries. All kLanes
// adjacent lanes call this. Rows past the last query, and rows that see no key, have zero weights.
template <int kLanes, class Element>
__device__ __forceinline__ void write_row_stats(const RowParams& p, int64_t row, int block_q,
                                                int lane) {
  const int64_t number = row / block_q;
  const auto in_block = static_cast<int>(row - number * block_q);
  const int64_t batch_head = number / p.q_blocks;
  const int query = static_cast<int>(number - batch_head * p.q_blocks) * block_q + in_block;
  const auto batch = static_cast<int>(batch_head / p.heads_q);
  const auto head = static_cast<int>(batch_head - int64_t{batch} * p.heads_q);
  const bool exists = query < p.seqlen_q;
  float delta = 0;
  if (exists) {
    const auto* const o = static_cast<const uint16_t*>(p.o) + batch * p.o_batch + head * p.o_head +
                          query * p.o_row + lane * kLaneDims;
    const auto* const d_o = static_cast<const uint16_t*>(p.d_o.data) + batch * p.d_o.batch +
                            head * p.d_o.head + query * p.d_o.row + lane * kLaneDims;
    delta = lane_dot<Element>(o, d_o);
  }
  delta = lanes_sum<kLanes>(delta);
  if (lane != 0) return;
  float negative_lse = -__int_as_float(0x7f800000);
  if (exists) {
    const float lse = p.lse[batch * p.lse_batch + head * p.lse_head + query * p.lse_row];
    if (p.d_lse != nullptr) {
      delta -= p.d_lse[batch * p.d_lse_batch + head * p.d_lse_head + query * p.d_lse_row];
    }
    if (lse == -__int_as_float(0x7f800000)) {
      delta = 0;
    } else {
      negative_lse = -lse * attention::kLog2E;
    }
    if (lse == __int_as_float(0x7f800000)) negative_lse = __int_as_float(0x7fffffff);
  }
  float* const row_stats = p.row_stats + number * (2 * block_q) + in_block;
  row_stats[0] = negative_lse;
  row_stats[block_q] = delta;
}

// A block of queries, and its sequence's rows.
struct OwnBlock {
  EntryBlock block;
  EntryRows rows;
};
// Finds block `number`, by one thread for the whole thread
// block: a bisection per thread would cost more than their rows.
__device__ __forceinline__ const OwnBlock& find_own_block(const RowParams& p,
                                                          const Options& options, int64_t number,
                                                          int block_q) {
  OwnBlock& own = ptx::static_shared<OwnBlock>();
  if (threadIdx.x == 0) {
    const EntryBlock block = query_block(p, static_cast<uint32_t>(number), block_q);
    const EntryRows rows = entry_rows(p, options.band, block.entry, block_q);
    own.block = block;
    own.rows = rows;
  }
  __syncthreads();
  return own;
}

// Writes the statistics with options, and the query's term of its head's
// dSink. The rows of a thread block belong to one block of queries.
template <int kLanes, class Element>
__device__ __forceinline__ void write_row_stats_of_entry(const RowParams& p, const Options& options,
                                                         int64_t row, int block_q, int lane) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t number = row / block_q;
  const auto in_block = static_cast<int>(row - number * block_q);
  const auto& [block, rows] = find_own_block(p, options, number, block_q);
  const int query = block.block * block_q + in_block, head = block.head;
  const bool used = block.block >= 0 && query < rows.len_q;
  const attention::ColumnRange seen = attention::visible_columns(rows.limits, query, 0);
  const bool sees = used && max(seen.begin, 0) < seen.end;
  const int64_t q_row = int64_t{rows.q_row} + query;
  float delta = 0;
  if (sees && lane * kLaneDims < p.head_dim_v) {
    delta = lane_dot<Element>(static_cast<const uint16_t*>(p.o) + rows.batch * p.o_batch +
                                  head * p.o_head + q_row * p.o_row + lane * kLaneDims,
                              static_cast<const uint16_t*>(p.d_o.data) + rows.batch * p.d_o.batch +
                                  head * p.d_o.head + q_row * p.d_o.row + lane * kLaneDims);
  }
  delta = lanes_sum<kLanes>(delta);
  if (lane != 0) return;
  float d_lse = 0, lse = 0, negative_lse = -kInfinity, sink_term = 0;
  if (used && p.d_lse != nullptr) {
    d_lse = p.d_lse[rows.batch * p.d_lse_batch + head * p.d_lse_head + q_row * p.d_lse_row];
  }
  if (sees) {
    lse = p.lse[rows.batch * p.lse_batch + head * p.lse_head + q_row * p.lse_row];
    delta = lse == -kInfinity ? 0 : delta - d_lse;
    if (lse == kInfinity) lse = std::numeric_limits<float>::quiet_NaN();
    if (lse != -kInfinity) negative_lse = -lse * attention::kLog2E;
  }
  float* const row_stats = p.row_stats + number * (2 * block_q) + in_block;
  row_stats[0] = negative_lse;
  row_stats[block_q] = delta;
  if (options.sink_terms == nullptr) return;
  if (sees) {
    const float sink = options.sinks[head * options.sink_head];
    sink_term = -ptx::exp2_approx((sink - lse) * attention::kLog2E) * delta;
  } else {  // in such a row, only the LSE depends on the sink
    sink_term = d_lse;
  }
  options.sink_terms[number * block_q + in_block] = sink_term;
}

}  // namespace flashcore::cuda::backward_sm90
