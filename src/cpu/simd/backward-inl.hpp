// Computes the gradients of one batch entry and KV head for a range of its keys.
//
//   for each block of keys:            pack K^T, V^T and K | dK = dV = 0
//     for each head, block of queries: pack Q and dO, each as a left factor and as rows to sum
//       for each tile of rows:         S = Q K^T, dP = dO V^T | P, dS by rows
//       P^T, dS^T                      dV += P^T dO | dK += dS^T Q | dQ += dS K
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/simd/attend-inl.hpp"
#include "cpu/simd/backward_blocks-inl.hpp"
#include "cpu/simd/backward_pack-inl.hpp"
#include "cpu/simd/backward_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

// ---- products

// Converts rows of fp32 to the form that the products read.
inline void narrow_rows(int64_t first, int64_t last, int64_t begin, int64_t end, float* rows) {
  if constexpr (kPairs) {
    for (int64_t r = first; r < last; ++r) {
      float* const row = rows + r * kScoreStride;
      for (int64_t c = begin; c < end; c += kLanes) {
        store_probabilities(hn::Load(kF, row + c), c, row);
      }
    }
  }
}

// to[r] += rows[r] times b, summed over [begin, end).
inline void add_products(int64_t first, int64_t last, const float* rows, const float* b,
                         int64_t b_units, int64_t begin, int64_t end, float* to, int64_t width) {
  HWY_ALIGN float ones[kLargestRowTile];
  std::fill_n(ones, kLargestRowTile, 1.0f);
  for (int64_t r = first, tile = 0; r < last; r += tile) {
    tile = row_tile(last - r);
    values_of(tile, rows + r * kScoreStride, b, b_units, begin, end, ones, to + r * width, width);
  }
}

inline void attend_queries(const BackwardJob& job, const KeyBlock& keys, int64_t head,
                           int64_t first, const BackwardBuffers& buffers) {
  const BackwardLayout& l = *job.layout;
  QueryBlock queries;
  queries.first = first;
  queries.count = std::min(kBlockQ, job.tile.sequence.len_q - first);
  const Columns columns = columns_of(job, keys, queries);
  if (columns.last == 0) return;
  pack_queries(job, head, first, queries.count, false, buffers, queries);
  float* const dq = job.dq + (head * job.head_stride + first) * l.width_qk;
  for_each_gradient_row(job, keys, queries, columns, buffers,
                        [&](int64_t r, const GradientRow& row, bool with_special) {
                          if (!with_special) return;
                          special_gradients(job, keys, queries, r, columns, buffers, row,
                                            dq + r * l.width_qk);
                        });
  const int64_t rows = round_up(queries.count, kPanel);
  for (int64_t r = queries.count; r < rows; ++r) {
    for (float* const block : {buffers.p, buffers.ds}) {
      std::fill(block + r * kScoreStride + columns.first, block + r * kScoreStride + columns.last,
                0.0f);
    }
  }
  for (const auto& [from, to] :
       {std::pair{buffers.p, buffers.p_turned}, std::pair{buffers.ds, buffers.ds_turned}}) {
    transpose_block(from + columns.first, kScoreStride, rows, columns.last - columns.first,
                    to + columns.first * kScoreStride, kScoreStride);
    narrow_rows(columns.first, columns.keys, 0, rows, to);
  }
  narrow_rows(0, queries.count, columns.first, columns.last, buffers.ds);
  add_products(columns.first, columns.keys, buffers.p_turned, buffers.d_o_rows, kBlockQ / kUnit, 0,
               rows, buffers.dv, l.width_v);
  add_products(columns.first, columns.keys, buffers.ds_turned, buffers.q_rows, kBlockQ / kUnit, 0,
               rows, buffers.dk, l.width_qk);
  add_products(0, queries.count, buffers.ds, buffers.k_rows, l.block_kv / kUnit, columns.first,
               columns.last, dq, l.width_qk);
}

inline void attend_backward(const BackwardJob& job) {
  const BackwardLayout& l = *job.layout;
  const ForwardProblem& p = job.problem->forward;
  const Sequence& s = job.tile.sequence;
  const BackwardBuffers buffers = buffers_of(job);
  KeyBlock keys;
  begin_products();
  for (int64_t block = job.keys.begin; block < job.keys.end; block += l.block_kv) {
    const int64_t count = std::min(l.block_kv, job.keys.end - block);  // rows to write
    const int64_t used = std::clamp<int64_t>(s.len_kv - block, 0, count);
    std::fill_n(buffers.dk, count * l.width_qk, 0.0f);
    std::fill_n(buffers.dv, count * l.width_v, 0.0f);
    if (used > 0) pack_keys(job, block, used, false, buffers, keys);
    for (int64_t head = job.tile.head_first;
         used > 0 && head < job.tile.head_first + job.tile.heads; ++head) {
      for (int64_t first = 0; first < s.len_q; first += kBlockQ) {
        attend_queries(job, keys, head, first, buffers);
      }
    }
    for (int64_t j = 0; j < count; ++j) {
      const int64_t at = s.kv_begin + block + j;
      store_row(job.problem->dk_dtype, buffers.dk + j * l.width_qk, p.head_dim_qk, p.softmax_scale,
                job.arguments->dk, job.problem->dk.at(job.tile.batch, job.tile.head_kv, at));
      store_row(job.problem->dv_dtype, buffers.dv + j * l.width_v, p.head_dim_v, 1.0f,
                job.arguments->dv, job.problem->dv.at(job.tile.batch, job.tile.head_kv, at));
    }
  }
  end_products();
}

// ---- before and after

// Returns whether a row sees a key even though its LSE equals its sink.
inline bool sees_key(const BackwardJob& job, int64_t head, int64_t query) {
  const ForwardProblem& p = job.problem->forward;
  const Arguments& args = job.arguments->forward;
  const KeyRange visible = visible_keys(job.tile.sequence, p.band, query);
  if (!p.mask.present && !p.bias.present) return !visible.empty();
  for (int64_t j = visible.begin; j < visible.end; ++j) {
    const bool masked =
        p.mask.present &&
        static_cast<const uint8_t*>(args.mask)[p.mask.at(job.tile.batch, head, query, j)] == 0;
    if (masked) continue;
    if (!p.bias.present) return true;
    const double bias =
        load_element(p.bias.dtype, args.bias, p.bias.at(job.tile.batch, head, query, j));
    if (bias != -std::numeric_limits<double>::infinity()) return true;
  }
  return false;
}

// Computes delta and lse of every query in use of a head; returns the gradient of its sink.
inline double prepare_rows(const BackwardJob& job, int64_t head) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const ForwardProblem& p = job.problem->forward;
  const Sequence& s = job.tile.sequence;
  const BackwardLayout& l = *job.layout;
  const BackwardBuffers buffers = buffers_of(job);
  float* const o = buffers.staging;
  float* const d_o = o + l.width_v;
  const float sink =
      p.sinks.present ? job.arguments->forward.sinks[p.sinks.at(0, head)] : -kInfinity;
  double d_sink = 0;
  for (int64_t i = 0; i < s.len_q; ++i) {
    const int64_t at = s.q_begin + i;
    float& lse = job.lse[head * job.head_stride + i];
    float& delta = job.delta[head * job.head_stride + i];
    lse = static_cast<const float*>(job.arguments->forward.lse)[p.lse.at(job.tile.batch, head, at)];
    const float d_lse =
        job.problem->has_d_lse
            ? static_cast<const float*>(
                  job.arguments->d_lse)[job.problem->d_lse.at(job.tile.batch, head, at)]
            : 0.0f;
    bool none = visible_keys(s, p.band, i).empty() || lse == -kInfinity ||
                (lse == sink && (lse == kInfinity || !sees_key(job, head, i)));
    if (!none) {
      load_row(p.o_dtype, job.arguments->forward.o, p.o.at(job.tile.batch, head, at), p.head_dim_v,
               1.0f, o, l.width_v);
      none = std::isnan(sink) && !std::isnan(o[0]);  // if the row saw a key, O would be NaN, too
    }
    if (none) {
      lse = kInfinity;
      delta = 0;
      if (p.sinks.present) d_sink += static_cast<double>(d_lse);
      continue;
    }
    load_d_o(job, head, i, d_o);
    delta = row_dot(d_o, o, l.width_v) - d_lse;
    if (lse == kInfinity) lse = std::numeric_limits<float>::quiet_NaN();
    if (p.sinks.present) {
      d_sink -= std::exp(static_cast<double>(sink) - static_cast<double>(lse)) *
                static_cast<double>(delta);
    }
  }
  return d_sink;
}

// Computes dQ of a head's rows: the sum of `count` partial results, `stride` floats apart.
inline void finish_rows(const BackwardJob& job, int64_t head, int64_t count, int64_t stride) {
  const ForwardProblem& p = job.problem->forward;
  const Sequence& s = job.tile.sequence;
  const int64_t width = job.layout->width_qk;
  for (int64_t i = 0; i < s.rows_q; ++i) {
    float* const sum = job.dq + (head * job.head_stride + i) * width;
    for (int64_t n = 1; n < count; ++n) add_row(1.0f, sum + n * stride, width, sum);
    store_row(job.problem->dq_dtype, sum, p.head_dim_qk, p.softmax_scale, job.arguments->dq,
              job.problem->dq.at(job.tile.batch, head, s.q_begin + i));
  }
}

// Adds the contribution of one batch entry and query head to the job's elements of dBias, in scratch memory.
inline void add_to_bias(const BackwardJob& job, int64_t head, const BiasTile& tile) {
  const BackwardLayout& l = *job.layout;
  const Sequence& s = job.tile.sequence;
  const BackwardBuffers buffers = buffers_of(job);
  const int64_t* const extents = job.problem->d_bias_extents;
  KeyBlock keys;
  QueryBlock queries;
  begin_products();
  const int64_t last_key = std::min(tile.key_last, s.len_kv);
  const int64_t last_query = std::min(tile.query_last, s.len_q);
  for (int64_t block = tile.key_first; block < last_key; block += l.block_kv) {
    pack_keys(job, block, std::min(l.block_kv, last_key - block), true, buffers, keys);
    for (int64_t first = tile.query_first; first < last_query; first += kBlockQ) {
      queries.first = first;
      queries.count = std::min(kBlockQ, last_query - first);
      const Columns columns = columns_of(job, keys, queries);
      if (columns.last == 0) continue;
      pack_queries(job, head, first, queries.count, true, buffers, queries);
      for_each_gradient_row(
          job, keys, queries, columns, buffers, [&](int64_t r, const GradientRow& row, bool) {
            double* const to =
                buffers.d_bias + (extents[2] == 1 ? 0 : first + r - tile.query_first) * l.block_kv;
            for (int64_t c = columns.first; c < columns.keys; ++c) {
              to[extents[3] == 1 ? 0 : block + c - tile.key_first] +=
                  static_cast<double>(row.dp[c]);
            }
          });
    }
  }
  end_products();
}

inline BackwardLayout backward_layout(const BackwardProblem& problem, int64_t block_kv) {
  const ForwardProblem& p = problem.forward;
  BackwardLayout l;
  l.block_kv = block_kv;
  l.units_qk = round_up((p.head_dim_qk + kUnit - 1) / kUnit, kUnitsStep);
  l.units_v = round_up((p.head_dim_v + kUnit - 1) / kUnit, kUnitsStep);
  l.width_qk = round_up(p.head_dim_qk, kLanes);
  l.width_v = round_up(p.head_dim_v, kLanes);
  size_t end = 0;
  const auto place = [&end](int64_t floats) {
    const size_t at = end;
    end += static_cast<size_t>(round_up(floats * 4, 64));
    return at;
  };
  const int64_t panels_qk = round_up(l.width_qk, kPanel), panels_v = round_up(l.width_v, kPanel);
  const int64_t all_rows = kBlockQ + kLargestRowTile;
  l.q_tiles = place(all_rows * l.units_qk);
  l.d_o_tiles = place(all_rows * l.units_v);
  l.q_rows = place(kBlockQ / kUnit * panels_qk);
  l.d_o_rows = place(kBlockQ / kUnit * panels_v);
  l.k_panels = place(block_kv * l.units_qk);
  l.v_panels = place(block_kv * l.units_v);
  l.k_rows = place(block_kv / kUnit * panels_qk);
  l.dk = place(block_kv * l.width_qk);
  l.dv = place(block_kv * l.width_v);
  l.s = place(kLargestRowTile * kScoreStride);
  l.dp = place(kLargestRowTile * kScoreStride);
  l.p = place(all_rows * kScoreStride);
  l.ds = place(all_rows * kScoreStride);
  l.p_turned = place((block_kv + kLargestRowTile) * kScoreStride);
  l.ds_turned = place((block_kv + kLargestRowTile) * kScoreStride);
  const int64_t units = kLanes * std::max(l.units_qk, l.units_v) + std::max(l.width_qk, l.width_v);
  l.staging = place(
      std::max(block_kv * std::max(l.width_qk, l.width_v), kBlockQ * (l.width_qk + l.width_v)) +
      std::max(units, 2 * (l.width_qk + l.width_v)));
  l.d_bias = place(problem.d_bias.present ? 2 * kBlockQ * block_kv : 0);
  l.bytes = end;
  return l;
}

inline constexpr BackwardKernels kBackwardKernels{backward_layout, prepare_rows, attend_backward,
                                                  finish_rows, add_to_bias};

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
