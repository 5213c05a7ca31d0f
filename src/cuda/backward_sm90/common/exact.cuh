// Recomputes rows of gradients whose sums are not finite, one by one, in fp32.
//
// A product multiplies every weight of a tile by every row, and 0 * NaN is NaN: a NaN would reach
// rows that do not see it, and a weight in fp16 may be infinite although its gradient is finite.
// Here, pairs that are not visible are skipped. A warp computes a row; each lane has every 32nd dim.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/backward_sm90/common/element.cuh"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::backward_sm90 {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

template <int kDims, class Element>
struct ExactRow {
  static constexpr int kOwn = kDims / 32;
  float x[kOwn];

  __device__ __forceinline__ void load(const attention::RowMatrix& m, int batch, int head, int row,
                                       int lane) {
    const auto* const from =
        static_cast<const uint16_t*>(m.data) + batch * m.batch + head * m.head + row * m.row + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) x[i] = Element::to_float(from[32 * i]);
  }
  __device__ __forceinline__ float dot(const ExactRow& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) sum = fmaf(x[i], other.x[i], sum);
    return warp_sum(sum);
  }
  __device__ __forceinline__ void add(float weight, const ExactRow& other) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) x[i] = fmaf(weight, other.x[i], x[i]);
  }
  __device__ __forceinline__ void store(const Target& target, int batch, int head, int row,
                                        int lane, float scale) const {
    auto* const to = static_cast<uint16_t*>(target.data) + batch * target.batch +
                     head * target.head + row * target.row + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      to[32 * i] = static_cast<uint16_t>(Element::pack(x[i] * scale, 0));
    }
  }
};

// Returns a query's row statistics: -LSE log2(e) and delta.
__device__ __forceinline__ float2 row_stats_of(const RowParams& p, int batch, int head, int query,
                                               int block_q) {
  const int block = query / block_q;
  const float* const row_stats =
      p.row_stats + ((int64_t{batch} * p.heads_q + head) * p.q_blocks + block) * (2 * block_q) +
      (query - block * block_q);
  return make_float2(row_stats[0], row_stats[block_q]);
}

template <int kDims, class Element>
__device__ __forceinline__ void compute_query_exactly(const RowParams& p, int batch, int head,
                                                      int query, int block_q, int lane) {
  using Row = ExactRow<kDims, Element>;
  const attention::ColumnRange seen = attention::visible_columns(p.limits, query, 0);
  const float2 stats = row_stats_of(p, batch, head, query, block_q);
  Row q, d_o, sum{};
  q.load(p.q, batch, head, query, lane);
  d_o.load(p.d_o, batch, head, query, lane);
  for (int key = max(seen.begin, 0); key < seen.end; ++key) {
    Row k, v;
    k.load(p.k, batch, head / p.group, key, lane);
    v.load(p.v, batch, head / p.group, key, lane);
    const float weight = ptx::exp2_approx(fmaf(q.dot(k), p.scale_log2, stats.x));
    sum.add(weight * (d_o.dot(v) - stats.y), k);
  }
  sum.store(p.dq, batch, head, query, lane, p.scale);
}

template <int kDims, class Element>
__device__ __forceinline__ void compute_key_exactly(const RowParams& p, int batch, int kv_head,
                                                    int key, int block_q, int lane) {
  using Row = ExactRow<kDims, Element>;
  const attention::ColumnRange seen =
      attention::visible_columns(attention::seen_from_keys(p.limits, p.seqlen_q), key, 0);
  Row k, v, dk{}, dv{};
  k.load(p.k, batch, kv_head, key, lane);
  v.load(p.v, batch, kv_head, key, lane);
  for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
    for (int query = max(seen.begin, 0); query < seen.end; ++query) {
      Row q, d_o;
      q.load(p.q, batch, head, query, lane);
      d_o.load(p.d_o, batch, head, query, lane);
      const float2 stats = row_stats_of(p, batch, head, query, block_q);
      const float weight = ptx::exp2_approx(fmaf(q.dot(k), p.scale_log2, stats.x));
      dk.add(weight * (d_o.dot(v) - stats.y), q);
      dv.add(weight, d_o);
    }
  }
  dk.store(p.dk, batch, kv_head, key, lane, p.scale);
  dv.store(p.dv, batch, kv_head, key, lane, 1);
}

}  // namespace flashcore::cuda::backward_sm90
