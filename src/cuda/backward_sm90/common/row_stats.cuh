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

// A block of queries, and its sequence's rows.
struct OwnBlock {
  EntryBlock block;
  EntryRows rows;
};
// Finds block `number`; with options, by one thread for the whole thread
// block: a bisection per thread would cost more than their rows.
template <class P>
__device__ __forceinline__ decltype(auto) find_own_block(const P& p, int64_t number, int block_q) {
  const auto find = [&] {
    const EntryBlock block = query_block(p, static_cast<uint32_t>(number), block_q);
    return OwnBlock{block, entry_rows(p, block.entry, block_q)};
  };
  if constexpr (kHasOptions<P>) {
    OwnBlock& own = ptx::static_shared<OwnBlock>();
    if (threadIdx.x == 0) {
      const OwnBlock found = find();
      own = found;  // a store of its own, which the simulator sees
    }
    __syncthreads();
    return static_cast<const OwnBlock&>(own);
  } else {
    return find();
  }
}

// Writes the statistics of query `row`, counted over all blocks of block_q queries, and its term of its
// head's dSink. All kLanes adjacent lanes call this; the rows of a thread block belong to one block of
// queries. Rows past the last query, and rows that see no key, have zero weights.
template <int kLanes, class Element, class P>
__device__ __forceinline__ void write_row_stats(const P& p, int64_t row, int block_q, int lane) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t number = row / block_q;
  const auto in_block = static_cast<int>(row - number * block_q);
  const auto& [block, rows] = find_own_block(p, number, block_q);
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
  float d_lse = 0, lse = 0, negative_lse = -kInfinity;
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
  if constexpr (kHasOptions<P>) {
    const Options& options = p.options;
    if (options.sink_terms == nullptr) return;
    float term = d_lse;  // in a row that sees no key, only the LSE depends on the sink
    if (sees) {
      const float sink = options.sinks[head * options.sink_head];
      term = -ptx::exp2_approx((sink - lse) * attention::kLog2E) * delta;
    }
    options.sink_terms[number * block_q + in_block] = term;
  }
}

}  // namespace flashcore::cuda::backward_sm90
