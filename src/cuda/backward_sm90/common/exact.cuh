// Recomputes rows of gradients whose sums are not finite, one by one, in fp32.
//
// A product multiplies every weight of a tile by every row, and 0 * NaN is NaN: a NaN would reach
// rows that do not see it, and a weight in fp16 may be infinite although its gradient is finite.
// Here, pairs that are not visible are skipped. A warp computes a row; each lane has every 32nd dim.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/warpgroup_element.cuh"
#include "cuda/backward_sm90/common/capped.cuh"
#include "cuda/backward_sm90/common/exact_pairs.cuh"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::backward_sm90 {

using attention::warpgroup::Bf16, attention::warpgroup::Fp16;

// The rows of one sequence, and the size of query blocks, in which row statistics are stored.
template <class P>
struct ExactEntry {
  const P& p;
  const EntryRows& rows;
  int block_q;
  int entry = 0;  // with pairs: the sequence
};

// Columns from `columns` on, the head dimension, are zeros.
template <int kDims, class Element>
struct ExactRow {
  static constexpr int kOwn = kDims / 32;
  float x[kOwn];

  __device__ __forceinline__ void load(const attention::RowMatrix& m, int batch, int head, int row,
                                       int lane, int columns) {
    const auto* const from =
        static_cast<const uint16_t*>(m.data) + batch * m.batch + head * m.head + row * m.row + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      x[i] = lane + 32 * i < columns ? Element::to_float(from[32 * i]) : 0.0F;
    }
  }
  __device__ __forceinline__ float dot(const ExactRow& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) sum = fmaf(x[i], other.x[i], sum);
    return attention::warp_sum(sum);
  }
  __device__ __forceinline__ void add(float weight, const ExactRow& other) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) x[i] = fmaf(weight, other.x[i], x[i]);
  }
  __device__ __forceinline__ void store(const Target& target, int batch, int head, int row,
                                        int lane, int columns, float scale) const {
    auto* const to = static_cast<uint16_t*>(target.data) + batch * target.batch +
                     head * target.head + row * target.row + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (lane + 32 * i >= columns) continue;
      to[32 * i] = static_cast<uint16_t>(Element::pack(x[i] * scale, 0));
    }
  }
};

// A pair's weights for dV and for dS; the second includes the softcap's slope.
struct PairWeights {
  float p, ds;
};

// products: of Q and K, and of dO and V.
template <class P>
__device__ __forceinline__ PairWeights pair_weights(const ExactEntry<P>& e, int head, int query,
                                                    float qk, float dov) {
  const int block = query / e.block_q;
  const int64_t number =
      (int64_t{e.rows.batch} * e.p.heads_q + head) * e.p.q_blocks + e.rows.first_block + block;
  const float* const row_stats =
      e.p.row_stats + number * (2 * e.block_q) + (query - block * e.block_q);
  const float negative_lse = row_stats[0], delta = row_stats[e.block_q];
  if constexpr (kHasOptions<P>) {
    if (e.p.options.cap.cap_log2 > 0) {
      const CappedScore score = capped_score(e.p.options, qk);
      const float weight = ptx::exp2_approx(score.log2 + negative_lse);
      return {weight, weight * (dov - delta) * score.slope};
    }
  }
  const float weight = ptx::exp2_approx(fmaf(qk, e.p.scale_log2, negative_lse));
  return {weight, weight * (dov - delta)};
}

// The weights of a pair that may be removed.
struct ExactWeights {
  bool removed;
  PairWeights of;
};
template <class P>
__device__ __forceinline__ ExactWeights exact_weights(const ExactEntry<P>& e, const PairPlace& at,
                                                      float qk, float dov) {
  const int block = at.query / e.block_q;
  const int64_t number =
      (int64_t{e.rows.batch} * e.p.heads_q + at.head) * e.p.q_blocks + e.rows.first_block + block;
  const float delta = e.p.row_stats[number * (2 * e.block_q) + e.block_q + at.query % e.block_q];
  const ExactPair pair = exact_pair(e.p, e.rows, at, qk);
  return {pair.removed, {pair.weight * pair.factor, pair.weight * (pair.factor * dov - delta)}};
}

template <int kDims, class Element, class P>
__device__ __forceinline__ void compute_query_exactly(const ExactEntry<P>& e, int head, int query,
                                                      int lane) {
  using Row = ExactRow<kDims, Element>;
  const RowParams& p = e.p;
  const int batch = e.rows.batch, row = e.rows.q_row + query;
  attention::ColumnRange seen = attention::visible_columns(e.rows.limits, query, 0);
  if (query >= e.rows.len_q) seen.end = seen.begin;
  Row q, d_o, sum{};
  q.load(p.q, batch, head, row, lane, p.head_dim_qk);
  d_o.load(p.d_o, batch, head, row, lane, p.head_dim_v);
  for (int key = max(seen.begin, 0); key < seen.end; ++key) {
    Row k, v;
    k.load(p.k, batch, head / p.group, e.rows.kv_row + key, lane, p.head_dim_qk);
    v.load(p.v, batch, head / p.group, e.rows.kv_row + key, lane, p.head_dim_v);
    if constexpr (kHasPairs<P>) {
      const auto [removed, pair] =
          exact_weights(e, {e.entry, head, query, key}, q.dot(k), d_o.dot(v));
      if (!removed) sum.add(pair.ds, k);
    } else {
      sum.add(pair_weights(e, head, query, q.dot(k), d_o.dot(v)).ds, k);
    }
  }
  sum.store(p.dq, batch, head, row, lane, p.head_dim_qk, p.scale);
}

template <int kDims, class Element, class P>
__device__ __forceinline__ void compute_key_exactly(const ExactEntry<P>& e, int kv_head, int key,
                                                    int lane) {
  using Row = ExactRow<kDims, Element>;
  const RowParams& p = e.p;
  const int batch = e.rows.batch, row = e.rows.kv_row + key;
  attention::ColumnRange seen =
      attention::visible_columns(attention::seen_from_keys(e.rows.limits, e.rows.len_q), key, 0);
  if (key >= e.rows.limits.len_kv) seen.end = seen.begin;
  Row k, v, dk{}, dv{};
  k.load(p.k, batch, kv_head, row, lane, p.head_dim_qk);
  v.load(p.v, batch, kv_head, row, lane, p.head_dim_v);
  for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
    for (int query = max(seen.begin, 0); query < seen.end; ++query) {
      Row q, d_o;
      q.load(p.q, batch, head, e.rows.q_row + query, lane, p.head_dim_qk);
      d_o.load(p.d_o, batch, head, e.rows.q_row + query, lane, p.head_dim_v);
      if constexpr (kHasPairs<P>) {
        const auto [removed, pair] =
            exact_weights(e, {e.entry, head, query, key}, q.dot(k), d_o.dot(v));
        if (removed) continue;
        dk.add(pair.ds, q);
        dv.add(pair.p, d_o);
      } else {
        const PairWeights pair = pair_weights(e, head, query, q.dot(k), d_o.dot(v));
        dk.add(pair.ds, q);
        dv.add(pair.p, d_o);
      }
    }
  }
  dk.store(p.dk, batch, kv_head, row, lane, p.head_dim_qk, p.scale);
  dv.store(p.dv, batch, kv_head, row, lane, p.head_dim_v, 1);
}

}  // namespace flashcore::cuda::backward_sm90
