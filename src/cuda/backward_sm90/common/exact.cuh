// Rows of gradients whose sums are not finite, computed again one by one, in fp32.
//
// A product multiplies every weight of a tile by every row, and 0 * NaN is NaN: a NaN would reach
// rows that do not see it, and in fp16 a weight may be infinite where its gradient is a number. Here
// pairs that are not visible are left out. A warp computes a row; each lane has every 32nd dim.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/backward_sm90/common/capped.cuh"
#include "cuda/backward_sm90/common/element.cuh"
#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::backward_sm90 {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffU, x, step);
  return x;
}

// The weight of a pair, and the slope of its softcap.
struct ExactWeight {
  float weight, slope;
};

// Rows of a problem without options: batch entries are alike, and rows have kDims columns.
struct PlainRows {
  const RowParams& p;
  int batch;
  static constexpr bool kOptions = false;

  __device__ __forceinline__ attention::BandLimits limits() const { return p.limits; }
  __device__ __forceinline__ int queries() const { return p.seqlen_q; }
  __device__ __forceinline__ int q_row() const { return 0; }
  __device__ __forceinline__ int kv_row() const { return 0; }
  __device__ __forceinline__ int first_block() const { return 0; }
  __device__ __forceinline__ ExactWeight weigh(float product, float negative_lse) const {
    return {ptx::exp2_approx(fmaf(product, p.scale_log2, negative_lse)), 1};
  }
};

// Rows of one batch entry of a problem with options. Columns from the head dimension on are zeros.
struct OptionRows {
  const RowParams& p;
  const Options& options;
  const EntryRows& rows;
  int batch;
  static constexpr bool kOptions = true;

  __device__ __forceinline__ attention::BandLimits limits() const { return rows.limits; }
  __device__ __forceinline__ int queries() const { return rows.len_q; }
  __device__ __forceinline__ int q_row() const { return rows.q_row; }
  __device__ __forceinline__ int kv_row() const { return rows.kv_row; }
  __device__ __forceinline__ int first_block() const { return rows.first_block; }
  __device__ __forceinline__ ExactWeight weigh(float product, float negative_lse) const {
    if (!(options.cap.cap_log2 > 0)) {
      return {ptx::exp2_approx(fmaf(product, p.scale_log2, negative_lse)), 1};
    }
    const CappedScore score = capped_score(options, product);
    return {ptx::exp2_approx(score.log2 + negative_lse), score.slope};
  }
};

template <int kDims, class Element, bool kOptions>
struct ExactRow {
  static constexpr int kOwn = kDims / 32;
  float x[kOwn];

  // Without options `columns` is kDims.
  __device__ __forceinline__ void load(const attention::RowMatrix& m, int batch, int head, int row,
                                       int lane, int columns) {
    const auto* const from =
        static_cast<const uint16_t*>(m.data) + batch * m.batch + head * m.head + row * m.row + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      x[i] = !kOptions || lane + 32 * i < columns ? Element::to_float(from[32 * i]) : 0.0F;
    }
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
                                        int lane, int columns, float scale) const {
    auto* const to = static_cast<uint16_t*>(target.data) + batch * target.batch +
                     head * target.head + row * target.row + lane;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (kOptions && lane + 32 * i >= columns) continue;
      to[32 * i] = static_cast<uint16_t>(Element::pack(x[i] * scale, 0));
    }
  }
};

// -LSE log2(e) and delta of a query.
template <class Rows>
__device__ __forceinline__ float2 note_of(const Rows& rows, int head, int query, int block_q) {
  const RowParams& p = rows.p;
  const int block = query / block_q;
  const float* const notes =
      p.notes +
      ((int64_t{rows.batch} * p.heads_q + head) * p.q_blocks + rows.first_block() + block) *
          (2 * block_q) +
      (query - block * block_q);
  return make_float2(notes[0], notes[block_q]);
}

template <int kDims, class Element, class Rows>
__device__ __forceinline__ void compute_query_exactly(const Rows& rows, int head, int query,
                                                      int block_q, int lane) {
  using Row = ExactRow<kDims, Element, Rows::kOptions>;
  const RowParams& p = rows.p;
  const int batch = rows.batch, row = rows.q_row() + query;
  attention::ColumnRange seen = attention::visible_columns(rows.limits(), query, 0);
  if (Rows::kOptions && query >= rows.queries()) seen.end = seen.begin;
  const float2 note = note_of(rows, head, query, block_q);
  Row q, d_o, sum{};
  q.load(p.q, batch, head, row, lane, p.head_dim_qk);
  d_o.load(p.d_o, batch, head, row, lane, p.head_dim_v);
  for (int key = max(seen.begin, 0); key < seen.end; ++key) {
    Row k, v;
    k.load(p.k, batch, head / p.group, rows.kv_row() + key, lane, p.head_dim_qk);
    v.load(p.v, batch, head / p.group, rows.kv_row() + key, lane, p.head_dim_v);
    const ExactWeight pair = rows.weigh(q.dot(k), note.x);
    const float ds = pair.weight * (d_o.dot(v) - note.y);
    sum.add(Rows::kOptions ? ds * pair.slope : ds, k);
  }
  sum.store(p.dq, batch, head, row, lane, p.head_dim_qk, p.scale);
}

template <int kDims, class Element, class Rows>
__device__ __forceinline__ void compute_key_exactly(const Rows& rows, int kv_head, int key,
                                                    int block_q, int lane) {
  using Row = ExactRow<kDims, Element, Rows::kOptions>;
  const RowParams& p = rows.p;
  const int batch = rows.batch, row = rows.kv_row() + key;
  attention::ColumnRange seen =
      attention::visible_columns(attention::seen_from_keys(rows.limits(), rows.queries()), key, 0);
  if (Rows::kOptions && key >= rows.limits().len_kv) seen.end = seen.begin;
  Row k, v, dk{}, dv{};
  k.load(p.k, batch, kv_head, row, lane, p.head_dim_qk);
  v.load(p.v, batch, kv_head, row, lane, p.head_dim_v);
  for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; ++head) {
    for (int query = max(seen.begin, 0); query < seen.end; ++query) {
      Row q, d_o;
      q.load(p.q, batch, head, rows.q_row() + query, lane, p.head_dim_qk);
      d_o.load(p.d_o, batch, head, rows.q_row() + query, lane, p.head_dim_v);
      const float2 note = note_of(rows, head, query, block_q);
      const ExactWeight pair = rows.weigh(q.dot(k), note.x);
      const float ds = pair.weight * (d_o.dot(v) - note.y);
      dk.add(Rows::kOptions ? ds * pair.slope : ds, q);
      dv.add(pair.weight, d_o);
    }
  }
  dk.store(p.dk, batch, kv_head, row, lane, p.head_dim_qk, p.scale);
  dv.store(p.dv, batch, kv_head, row, lane, p.head_dim_v, 1);
}

}  // namespace flashcore::cuda::backward_sm90
