// The blocks of keys and queries that the backward pass multiplies: reads and packs their rows, and
// computes P and dS of their pairs.
//
// A row of Q, K, V or dO that is not finite takes part in no product, since 0 times it would be
// NaN: it is packed as zeros, and its pairs that remain after masking are added one by one.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/simd/attend-inl.hpp"
#include "cpu/simd/backward_pack-inl.hpp"
#include "cpu/simd/backward_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

struct BackwardBuffers {
  float *q_tiles, *d_o_tiles, *q_rows, *d_o_rows, *k_panels, *v_panels, *k_rows, *dk, *dv, *s, *dp,
      *p, *ds, *p_turned, *ds_turned, *staging;
  double* d_bias;
};

inline BackwardBuffers buffers_of(const BackwardJob& job) {
  const BackwardLayout& l = *job.layout;
  const auto at = [&](size_t offset) {
    return reinterpret_cast<float*>(job.tile.scratch + offset);
  };
  return {at(l.q_tiles),
          at(l.d_o_tiles),
          at(l.q_rows),
          at(l.d_o_rows),
          at(l.k_panels),
          at(l.v_panels),
          at(l.k_rows),
          at(l.dk),
          at(l.dv),
          at(l.s),
          at(l.dp),
          at(l.p),
          at(l.ds),
          at(l.p_turned),
          at(l.ds_turned),
          at(l.staging),
          reinterpret_cast<double*>(job.tile.scratch + l.d_bias)};
}

// ---- loads rows of the four inputs as fp32, padded

inline void load_q(const BackwardJob& job, int64_t head, int64_t query, float* out) {
  const ForwardProblem& p = job.problem->forward;
  load_row(p.dtype, job.arguments->forward.q,
           p.q.at(job.tile.batch, head, job.tile.sequence.q_begin + query), p.head_dim_qk, 1.0f,
           out, job.layout->width_qk);
}

inline void load_d_o(const BackwardJob& job, int64_t head, int64_t query, float* out) {
  const ForwardProblem& p = job.problem->forward;
  load_row(p.o_dtype, job.arguments->d_o,
           job.problem->d_o.at(job.tile.batch, head, job.tile.sequence.q_begin + query),
           p.head_dim_v, 1.0f, out, job.layout->width_v);
}

inline void load_k(const BackwardJob& job, int64_t key, float* out) {
  const ForwardProblem& p = job.problem->forward;
  load_row(p.dtype, job.arguments->forward.k,
           p.k.at(job.tile.batch, job.tile.head_kv, job.tile.sequence.kv_begin + key),
           p.head_dim_qk, 1.0f, out, job.layout->width_qk);
}

inline void load_v(const BackwardJob& job, int64_t key, float* out) {
  const ForwardProblem& p = job.problem->forward;
  load_row(p.dtype, job.arguments->forward.v,
           p.v.at(job.tile.batch, job.tile.head_kv, job.tile.sequence.kv_begin + key), p.head_dim_v,
           1.0f, out, job.layout->width_v);
}

// ---- blocks

struct KeyBlock {
  int64_t first = 0;
  int64_t count = 0;  // keys in use
  SpecialKeys special;
};

struct QueryBlock {
  int64_t head = 0;
  int64_t first = 0;
  int64_t count = 0;
  bool special[kBlockQ];
  bool any_special = false;
};

inline bool is_special(const SpecialKeys& special, int64_t column) {
  return std::find(special.index, special.index + special.count, column) !=
         special.index + special.count;
}

// `transposed_only`: no product needs K by rows.
inline void pack_keys(const BackwardJob& job, int64_t first, int64_t count, bool transposed_only,
                      const BackwardBuffers& buffers, KeyBlock& block) {
  const BackwardLayout& l = *job.layout;
  block.first = first;
  block.count = count;
  block.special.count = 0;
  float* const rows = buffers.staging;
  float* const units = rows + l.block_kv * std::max(l.width_qk, l.width_v);
  const int64_t padded = round_up(count, kPanel);
  for (int64_t j = 0; j < count; ++j) {
    load_k(job, first + j, rows + j * l.width_qk);
    load_v(job, first + j, units);
    if (all_finite(rows + j * l.width_qk, l.width_qk) && all_finite(units, l.width_v)) continue;
    block.special.index[block.special.count++] = static_cast<int16_t>(j);
    std::fill_n(rows + j * l.width_qk, l.width_qk, 0.0f);
  }
  std::fill(rows + count * l.width_qk, rows + padded * l.width_qk, 0.0f);
  pack_panels(rows, count, l.width_qk, l.units_qk, units, buffers.k_panels);
  if (!transposed_only) pack_rows(rows, count, l.width_qk, l.block_kv, buffers.k_rows);
  for (int64_t j = 0; j < count; ++j) load_v(job, first + j, rows + j * l.width_v);
  for (int32_t n = 0; n < block.special.count; ++n) {
    std::fill_n(rows + block.special.index[n] * l.width_v, l.width_v, 0.0f);
  }
  std::fill(rows + count * l.width_v, rows + padded * l.width_v, 0.0f);
  pack_panels(rows, count, l.width_v, l.units_v, units, buffers.v_panels);
}

inline void pack_queries(const BackwardJob& job, int64_t head, int64_t first, int64_t count,
                         bool tiles_only, const BackwardBuffers& buffers, QueryBlock& block) {
  const BackwardLayout& l = *job.layout;
  block.head = head;
  block.first = first;
  block.count = count;
  block.any_special = false;
  float* const q = buffers.staging;
  float* const d_o = q + kBlockQ * l.width_qk;
  float* const units = d_o + kBlockQ * l.width_v;
  const float* const lse = job.lse + head * job.head_stride + first;
  const float* const delta = job.delta + head * job.head_stride + first;
  for (int64_t r = 0; r < kBlockQ; ++r) {
    float* const q_row = q + r * l.width_qk;
    float* const d_o_row = d_o + r * l.width_v;
    block.special[r] = false;
    const bool sees_keys = r < count && lse[r] != std::numeric_limits<float>::infinity();
    if (sees_keys) {
      load_q(job, head, first + r, q_row);
      load_d_o(job, head, first + r, d_o_row);
      block.special[r] = !std::isfinite(lse[r]) || !std::isfinite(delta[r]) ||
                         !all_finite(q_row, l.width_qk) || !all_finite(d_o_row, l.width_v);
      block.any_special = block.any_special || block.special[r];
    }
    if (sees_keys && !block.special[r]) continue;
    std::fill_n(q_row, l.width_qk, 0.0f);
    std::fill_n(d_o_row, l.width_v, 0.0f);
  }
  for (int64_t row = 0, tile = 0; row < count; row += tile) {
    tile = row_tile(count - row);
    pack_tile(q + row * l.width_qk, tile, l.width_qk, l.units_qk, units,
              buffers.q_tiles + row * l.units_qk);
    pack_tile(d_o + row * l.width_v, tile, l.width_v, l.units_v, units,
              buffers.d_o_tiles + row * l.units_v);
  }
  if (tiles_only) return;
  pack_rows(q, count, l.width_qk, kBlockQ, buffers.q_rows);
  pack_rows(d_o, count, l.width_v, kBlockQ, buffers.d_o_rows);
}

// Visits the pairs in row r of a block that the block products leave out: all columns if the row is
// special, otherwise the special columns.
template <class Visit>
void for_each_special(const KeyBlock& keys, const QueryBlock& queries, int64_t r,
                      const Columns& columns, const Visit& visit) {
  if (queries.special[r]) {
    for (int64_t c = columns.first; c < columns.keys; ++c) visit(c);
    return;
  }
  for (int32_t n = 0; n < keys.special.count; ++n) {
    const int64_t c = keys.special.index[n];
    if (c >= columns.first && c < columns.keys) visit(c);
  }
}

// Computes s and dp of special pairs. special_gradients() adds their contribution to the gradients
// and zeroes them in P and dS, so that the products skip them.
inline void special_products(const BackwardJob& job, const KeyBlock& keys,
                             const QueryBlock& queries, int64_t r, const Columns& columns,
                             const BackwardBuffers& buffers, const GradientRow& row) {
  const BackwardLayout& l = *job.layout;
  float* const q = buffers.staging;
  float* const d_o = q + l.width_qk;
  float* const k = d_o + l.width_v;
  float* const v = k + l.width_qk;
  load_q(job, row.head, row.query, q);
  load_d_o(job, row.head, row.query, d_o);
  for_each_special(keys, queries, r, columns, [&](int64_t c) {
    load_k(job, keys.first + c, k);
    load_v(job, keys.first + c, v);
    row.s[c] = row_dot(q, k, l.width_qk);
    row.dp[c] = row_dot(d_o, v, l.width_v);
  });
}

inline void special_gradients(const BackwardJob& job, const KeyBlock& keys,
                              const QueryBlock& queries, int64_t r, const Columns& columns,
                              const BackwardBuffers& buffers, const GradientRow& row, float* dq) {
  const BackwardLayout& l = *job.layout;
  float* const q = buffers.staging;
  float* const d_o = q + l.width_qk;
  float* const k = d_o + l.width_v;
  load_q(job, row.head, row.query, q);
  load_d_o(job, row.head, row.query, d_o);
  for_each_special(keys, queries, r, columns, [&](int64_t c) {
    if (row.s[c] != kRemoved) {
      load_k(job, keys.first + c, k);
      add_row(row.p[c], d_o, l.width_v, buffers.dv + c * l.width_v);
      add_row(row.ds[c], q, l.width_qk, buffers.dk + c * l.width_qk);
      add_row(row.ds[c], k, l.width_qk, dq);
    }
    row.p[c] = row.ds[c] = 0;
  });
}

// The columns of a block that any of its queries sees; if there are none, last is 0.
inline Columns columns_of(const BackwardJob& job, const KeyBlock& keys, const QueryBlock& queries) {
  const ForwardProblem& p = job.problem->forward;
  const KeyRange hull =
      visible_keys(job.tile.sequence, p.band, queries.first, queries.first + queries.count);
  const KeyRange seen{std::max(hull.begin, keys.first),
                      std::min(hull.end, keys.first + keys.count)};
  if (seen.empty()) return {};
  Columns columns;
  columns.block = keys.first;
  columns.first = (seen.begin - keys.first) / kPanel * kPanel;
  columns.last = round_up(seen.end - keys.first, kColumnStep);
  columns.keys = std::min(columns.last, keys.count);
  return columns;
}

// Calls visit(r, row) for every row of the block, with P and dS of the columns.
template <class Visit>
void for_each_gradient_row(const BackwardJob& job, const KeyBlock& keys, const QueryBlock& queries,
                           const Columns& columns, const BackwardBuffers& buffers,
                           const Visit& visit) {
  const ForwardProblem& p = job.problem->forward;
  const BackwardLayout& l = *job.layout;
  const KeyRange common =
      common_keys(job.tile.sequence, p.band, queries.first, queries.first + queries.count);
  const bool banded =
      common.begin > keys.first + columns.first || common.end < keys.first + columns.last;
  const float* const lse = job.lse + queries.head * job.head_stride + queries.first;
  const float* const delta = job.delta + queries.head * job.head_stride + queries.first;
  const bool any_special = queries.any_special || keys.special.count > 0;
  for (int64_t first = 0, tile = 0; first < queries.count; first += tile) {
    tile = row_tile(queries.count - first);
    scores_of(tile, buffers.q_tiles + first * l.units_qk, buffers.k_panels, l.units_qk,
              columns.first, columns.last, buffers.s);
    scores_of(tile, buffers.d_o_tiles + first * l.units_v, buffers.v_panels, l.units_v,
              columns.first, columns.last, buffers.dp);
    for (int64_t i = 0; i < tile; ++i) {
      const int64_t r = first + i;
      const GradientRow row{.head = queries.head,
                            .query = queries.first + r,
                            .lse = lse[r],
                            .delta = delta[r],
                            .s = buffers.s + i * kScoreStride,
                            .dp = buffers.dp + i * kScoreStride,
                            .p = buffers.p + r * kScoreStride,
                            .ds = buffers.ds + r * kScoreStride};
      const bool with_special = any_special && row.lse != std::numeric_limits<float>::infinity();
      if (with_special) special_products(job, keys, queries, r, columns, buffers, row);
      const double d_slope = gradient_row(job, row, columns, banded);
      if (job.d_slopes != nullptr) job.d_slopes[queries.head] -= d_slope;
      visit(r, row, with_special);
    }
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
