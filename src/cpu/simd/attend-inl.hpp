// One job: its rows against its keys, block by block, a tile of rows at a time.
//
//   for each block of keys:       pack K^T and V (once, for all rows of all heads of the job)
//     for each tile of rows:      S = Q K^T | mask | P = softmax(S) | O = O * alpha + P V
//
// S and P of a tile stay in the first-level cache, the packed block in the second. A job of few rows
// (TileJob::direct) reads K and V in place instead.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/largest.hpp"
#if defined(FLASHCORE_SIMD_AMX)
#include "cpu/simd/amx-inl.hpp"
#else
#include "cpu/simd/micro_kernel-inl.hpp"
#endif
#include "cpu/simd/direct-inl.hpp"
#include "cpu/simd/softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

struct Buffers {
  float *q, *k, *v, *o, *s, *largest, *denominator, *staging;
};

inline Buffers buffers_of(const TileJob& job) {
  const TileLayout& layout = *job.layout;
  const auto at = [&](size_t offset) { return reinterpret_cast<float*>(job.scratch + offset); };
  return {at(layout.q),
          at(layout.k),
          at(layout.v),
          at(layout.o),
          at(layout.s),
          at(layout.state),
          at(layout.state) + layout.rows,
          at(layout.staging)};
}

// Queries [first, last) that the rows of a tile are of.
inline KeyRange queries_of(const TileJob& job, int64_t row, int64_t rows) {
  const int64_t last = row + rows - 1;
  if (row / job.queries != last / job.queries) {
    return {job.query_first, job.query_first + job.queries};
  }
  return {job.query_of(row), job.query_of(last) + 1};
}

// Adds P times the values that pack_v left out, for the pairs that attend.
inline void add_special(const TileJob& job, const BlockPlaces& places, const SpecialKeys& special,
                        const uint8_t* attends, const Columns& columns, int64_t rows,
                        const Buffers& buffers, float* o) {
  const int64_t width = job.layout->width_v;
  for (int32_t n = 0; n < special.count; ++n) {
    const int64_t column = special.index[n];
    if (column < columns.first || column >= columns.last) continue;
    load_v_row(job, places.of[column], buffers.staging);
    for (int64_t r = 0; r < rows; ++r) {
      if (attends[r * kLargestBlockKv + n] == 0) continue;
      const VecF p =
          hn::Set(kF, load_probability(is_narrow(job), buffers.s + r * kScoreStride, column));
      float* const to = o + r * width;
      for (int64_t c = 0; c < width; c += kLanes) {
        const VecF sum = hn::MulAdd(p, hn::LoadU(kF, buffers.staging + c), hn::Load(kF, to + c));
        hn::Store(sum, kF, to + c);
      }
    }
  }
}

// Of a block, what a tile of rows sees: no columns when it is nothing.
inline Columns columns_of(const TileJob& job, int64_t row, int64_t rows, int64_t block,
                          int64_t count) {
  const ForwardProblem& p = *job.problem;
  const KeyRange queries = queries_of(job, row, rows);
  const KeyRange hull = visible_keys(job.sequence, p.band, queries.begin, queries.end);
  const KeyRange seen{std::max(hull.begin, block), std::min(hull.end, block + count)};
  Columns columns;
  columns.block = block;
  if (seen.empty()) return columns;
  columns.first = (seen.begin - block) / kPanel * kPanel;
  columns.last = round_up(seen.end - block, kColumnStep);
  columns.keys = std::min(columns.last, count);
  const KeyRange common = common_keys(job.sequence, p.band, queries.begin, queries.end);
  columns.banded = common.begin > block + columns.first || common.end < block + columns.last;
  return columns;
}

// What the softmax of a tile leaves beside the probabilities.
struct TileState {
  HWY_ALIGN float alpha[kLargestRowTile] = {};         // factors of the rows' older sums
  uint8_t attends[kLargestRowTile * kLargestBlockKv];  // whether a row attends to a special key
};

// Scores of a tile to probabilities.
inline void softmax_tile(const TileJob& job, const Buffers& buffers, const SpecialKeys& special,
                         const Columns& columns, int64_t row, int64_t rows, TileState& state) {
  HWY_ALIGN float sums[kLargestRowTile] = {};
  for (int64_t r = 0; r < rows; ++r) {
    float* const s = buffers.s + r * kScoreStride;
    const int64_t head = job.head_of(row + r);
    const int64_t query = job.query_of(row + r);
    const RowScale scale = row_scale(job, head);
    if (scale.transforms) transform_row(job, head, query, scale.product, columns, s);
    if (columns.banded) {
      remove_outside(visible_keys(job.sequence, job.problem->band, query), columns, s);
    }
    for (int32_t n = 0; n < special.count; ++n) {
      state.attends[r * kLargestBlockKv + n] = s[special.index[n]] != kRemoved;
    }
    state.alpha[r] =
        softmax_row(job, row + r, scale.power, columns, s, buffers.largest[row + r], sums[r]);
  }
  for (int64_t r = 0; r < rows; r += kLanes) {
    hn::Store(exp2_of(hn::Load(kF, state.alpha + r)), kF, state.alpha + r);
  }
  for (int64_t r = 0; r < rows; ++r) {
    float& denominator = buffers.denominator[row + r];
    denominator = denominator * state.alpha[r] + sums[r];
  }
}

// A tile of rows against the packed block.
inline void attend_tile(const TileJob& job, const Buffers& buffers, const BlockPlaces& places,
                        const SpecialKeys& special, int64_t row, int64_t rows, int64_t block,
                        int64_t count) {
  const TileLayout& layout = *job.layout;
  const Columns columns = columns_of(job, row, rows, block, count);
  if (columns.last == 0) return;
  scores_of(rows, buffers.q + row * layout.units_qk, buffers.k, layout.units_qk, columns.first,
            columns.last, buffers.s);
  TileState state;
  softmax_tile(job, buffers, special, columns, row, rows, state);
  float* const o = buffers.o + row * layout.width_v;
  values_of(rows, buffers.s, buffers.v, layout.block_kv / kUnit, columns.first, columns.last,
            state.alpha, o, layout.width_v);
  if (special.count > 0)
    add_special(job, places, special, state.attends, columns, rows, buffers, o);
}

// The rows of one KV head against a block that is read in place.
inline void attend_head(const TileJob& job, const Buffers& buffers, const BlockPlaces& places,
                        const NextKeys& next, int64_t block) {
  const int64_t rows = job.rows();
  const Columns columns = columns_of(job, 0, rows, block, places.end);
  if (columns.last == 0) return;
  SpecialKeys special;
  DirectValues values;
  TileState state;
  direct_scores(job, places, columns, buffers.q, buffers.staging, buffers.s);
  direct_values(job, places, next, columns, buffers.v, special, values);
  softmax_tile(job, buffers, special, columns, 0, rows, state);
  direct_products(rows, buffers.s, values, state.alpha, buffers.o, job.layout->width_v);
  if (special.count > 0) {
    add_special(job, places, special, state.attends, columns, rows, buffers, buffers.o);
  }
}

// Part n of a job of several KV heads, and of its buffers.
inline TileJob head_of_job(TileJob job, int64_t n) {
  job.head_kv += n;
  job.head_first += n * job.group;
  job.heads = job.group;
  return job;
}

inline Buffers head_of_buffers(const TileJob& job, Buffers buffers, int64_t n) {
  const int64_t row = n * job.group * job.queries;
  buffers.q += row * depth_of(*job.problem);
  buffers.o += row * job.layout->width_v;
  buffers.largest += row;
  buffers.denominator += row;
  return buffers;
}

// The largest |o| of a row that is stored as `o` times `factor`.
inline float largest_magnitude(const float* o, int64_t width, float factor) {
  float largest = 0;
  for (int64_t c = 0; c < width; ++c) largest = larger(largest, std::abs(o[c] * factor));
  return largest;
}

// Writes a row of O and its LSE from its sums. The row has no key when the denominator is 0.
inline void finish_row(const TileJob& job, int64_t row, float largest, float denominator,
                       const float* o) {
  const ForwardProblem& p = *job.problem;
  const Arguments& args = *job.arguments;
  const int64_t head = job.head_of(row);
  const int64_t query = job.query_of(row);
  const int64_t position = job.sequence.q_begin + query;
  const double shift = alibi_of(job, head, query).shift;
  const RowScale scale = row_scale(job, head);
  double top = reference_of(largest, scale.power);  // in powers of two
  double sum = denominator;
  double weight = 1;
  if (p.sinks.present) {
    constexpr double kLog2EExact = 1.4426950408889634;
    const double sink = static_cast<double>(args.sinks[p.sinks.at(0, head)]) - shift;
    if (denominator == 0) {
      top = sink * kLog2EExact;
      sum = 1;
    } else {
      // Scores are compared, then scaled: the sink may be the largest of them to the last bit.
      const double score = static_cast<double>(largest) * scale.score;
      const double power = static_cast<double>(largest) * scale.power;
      const double above = (sink - score) * kLog2EExact + (power - top);
      weight = std::exp2(-std::max(above, 0.0));
      sum = sum * weight + std::exp2(std::min(above, 0.0));
      if (above > 0) top = sink * kLog2EExact;
    }
  }
  double factor = denominator == 0 ? 0 : weight / sum;
  const double probability = factor;  // of a score at the row's reference, where exponents are 0
  if (p.dropout_p > 0) factor *= static_cast<double>(dropout_rescale(p.dropout_p));
  const float o_scale = p.o_scale.present ? args.o_scale[p.o_scale.at(job.batch, head)] : 1.0f;
  store_row(p.o_dtype, o, p.head_dim_v, static_cast<float>(factor), args.o,
            p.o.at(job.batch, head, position), o_scale);
  if (wants_largest(p)) {
    const double above = static_cast<double>(largest) * scale.power -
                         reference_of(largest, scale.power);  // the largest score's exponent
    add_largest(p, args, job.batch, head,
                largest_magnitude(o, p.head_dim_v, static_cast<float>(factor)),
                denominator == 0 ? 0 : static_cast<float>(probability * std::exp2(above)));
  }
  if (!p.has_lse) return;
  constexpr double kLn2 = 0.69314718055994531;
  const double lse =
      sum == 0 ? -std::numeric_limits<double>::infinity() : (top + std::log2(sum)) * kLn2 + shift;
  static_cast<float*>(args.lse)[p.lse.at(job.batch, head, position)] = static_cast<float>(lse);
}

inline void attend_packed(const TileJob& job, const Buffers& buffers) {
  const TileLayout& layout = *job.layout;
  const int64_t rows = job.rows();
  for (int64_t row = 0, tile = 0; row < rows; row += tile) {
    tile = row_tile(rows - row);
    pack_q(job, row, tile, buffers.staging, buffers.q + row * layout.units_qk);
  }
  BlockPlaces places;
  SpecialKeys special;
  begin_products();
  for (int64_t block = job.keys.begin; block < job.keys.end; block += layout.block_kv) {
    const int64_t count = std::min(layout.block_kv, job.keys.end - block);
    find_places(job, block, count, places);
    pack_k(job, places, count, buffers.staging, buffers.k);
    pack_v(job, places, count, buffers.staging, buffers.v, special);
    for (int64_t row = 0, tile = 0; row < rows; row += tile) {
      tile = row_tile(rows - row);
      attend_tile(job, buffers, places, special, row, tile, block, count);
    }
  }
  end_products();
}

inline void attend_direct(const TileJob& job, const Buffers& buffers) {
  load_direct_q(job, buffers.q);
  const int64_t heads = job.heads / job.group;
  BlockPlaces places[2];
  const auto find = [&](int64_t block) -> const BlockPlaces& {
    BlockPlaces& found = places[block / kDirectKeys % 2];
    find_places(job, block, std::clamp<int64_t>(job.keys.end - block, 0, kDirectKeys), found);
    return found;
  };
  const BlockPlaces* here = &find(job.keys.begin);
  for (int64_t block = job.keys.begin; block < job.keys.end; block += kDirectKeys) {
    const BlockPlaces& after = find(block + kDirectKeys);
    for (int64_t n = 0; n < heads; ++n) {
      const bool last = n + 1 == heads;
      attend_head(head_of_job(job, n), head_of_buffers(job, buffers, n), *here,
                  {last ? after : *here, last ? job.head_kv : job.head_kv + n + 1}, block);
    }
    here = &after;
  }
}

inline void attend(const TileJob& job) {
  const TileLayout& layout = *job.layout;
  const Buffers buffers = buffers_of(job);
  const int64_t rows = job.rows();
  std::fill_n(buffers.largest, rows, kRemoved);
  std::fill_n(buffers.denominator, rows, 0.0f);
  std::fill_n(buffers.o, rows * layout.width_v, 0.0f);
  if (!job.keys.empty()) {
    if (job.direct) {
      attend_direct(job, buffers);
    } else {
      attend_packed(job, buffers);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    const float* const o = buffers.o + row * layout.width_v;
    if (job.partial == nullptr) {
      finish_row(job, row, buffers.largest[row], buffers.denominator[row], o);
      continue;
    }
    float* const to = job.partial + row * (2 + layout.width_v);
    to[0] = buffers.largest[row];
    to[1] = buffers.denominator[row];
    std::copy_n(o, layout.width_v, to + 2);
  }
}

inline void merge(const TileJob& job, const float* partials, int64_t count, int64_t stride) {
  const int64_t width = job.layout->width_v;
  float* const sums = buffers_of(job).o;
  for (int64_t row = 0; row < job.rows(); ++row) {
    const float* const first = partials + row * (2 + width);
    float largest = kRemoved;
    for (int64_t n = 0; n < count; ++n) largest = std::max(largest, first[n * stride]);
    const float power = row_scale(job, job.head_of(row)).power;
    const double reference = largest == kRemoved ? 0.0 : reference_of(largest, power);
    float denominator = 0;
    std::fill_n(sums, width, 0.0f);
    for (int64_t n = 0; n < count; ++n) {
      const float* const part = first + n * stride;
      const float weight =
          exp2_of_scalar(static_cast<float>(reference_of(part[0], power) - reference));
      denominator += part[1] * weight;
      for (int64_t c = 0; c < width; ++c) sums[c] += part[2 + c] * weight;
    }
    finish_row(job, row, largest, denominator, sums);
  }
}

inline TileLayout layout_for(const ForwardProblem& p, int64_t rows, int64_t block_kv) {
  TileLayout layout;
  layout.rows = rows;
  layout.block_kv = block_kv;
  layout.units_qk = round_up((p.head_dim_qk + kUnit - 1) / kUnit, kUnitsStep);
  layout.width_v = round_up(p.head_dim_v, kLanes);
  size_t end = 0;
  const auto place = [&end](int64_t floats) {
    const size_t at = end;
    end += static_cast<size_t>(round_up(floats * 4, 64));
    return at;
  };
  const int64_t all_rows = round_up(rows, kRowStep);
  layout.q = place(std::max(all_rows * layout.units_qk, kDirectHeads * kDirectRows * depth_of(p)));
  layout.k = place(block_kv * layout.units_qk);
  layout.v = place(
      std::max(block_kv / kUnit * round_up(layout.width_v, kPanel), kDirectKeys * layout.width_v));
  layout.o = place(all_rows * layout.width_v);
  layout.s = place(kLargestRowTile * kScoreStride);
  layout.state = place(2 * rows);
  layout.staging = place(std::max(kLanes * layout.units_qk, kUnit * layout.width_v));
  layout.bytes = end;
  return layout;
}

inline constexpr SimdKernels kKernels{layout_for, attend, merge};

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
