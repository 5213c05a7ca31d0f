// One job: its rows against its keys, block by block, a tile of rows at a time.
//
//   for each block of keys:       pack K^T and V (once, for all rows of all heads of the job)
//     for each tile of rows:      S = Q K^T | mask | P = softmax(S) | O = O * alpha + P V
//
// S and P of a tile stay in the first-level cache, the packed block in the second. A job with few
// rows (TileJob::direct) reads K and V in place instead.
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

// The queries [first, last) that a tile's rows belong to.
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

// The columns of a block that a tile of rows sees; no columns if it sees none.
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

// The data of a row that the softmax needs.
struct SoftmaxRow {
  int64_t head = 0;
  int64_t query = 0;
  RowScale scale;
};

inline SoftmaxRow softmax_row_of(const TileJob& job, int64_t row) {
  const int64_t head = job.head_of(row);
  return {head, job.query_of(row), row_scale(job, head)};
}

// Turns the scores of `rows` rows into probabilities; alpha[r] gets the factor for the row's older sums.
// Calls keep(r, scores) before the scores are overwritten. `largest` and `denominator` are per row.
template <class Keep>
void softmax_tile(const TileJob& job, const SoftmaxRow* of, int64_t rows, const Columns& columns,
                  float* s, float* largest, float* denominator, float* alpha, const Keep& keep) {
  HWY_ALIGN float sums[kLargestRowTile] = {};
  for (int64_t r = 0; r < rows; ++r, s += kScoreStride) {
    const SoftmaxRow& row = of[r];
    if (row.scale.transforms) {
      transform_row(job, row.head, row.query, row.scale.product, columns, s);
    }
    if (columns.banded) {
      remove_outside(visible_keys(job.sequence, job.problem->band, row.query), columns, s);
    }
    keep(r, s);
    alpha[r] =
        softmax_row(job, row.head, row.query, row.scale.power, columns, s, largest[r], sums[r]);
  }
  for (int64_t r = 0; r < rows; r += kLanes) {
    hn::Store(exp2_of(hn::Load(kF, alpha + r)), kF, alpha + r);
  }
  for (int64_t r = 0; r < rows; ++r) denominator[r] = denominator[r] * alpha[r] + sums[r];
}

// Processes a tile of rows against the packed block.
inline void attend_tile(const TileJob& job, const Buffers& buffers, const BlockPlaces& places,
                        const SpecialKeys& special, int64_t row, int64_t rows, int64_t block,
                        int64_t count) {
  const TileLayout& layout = *job.layout;
  const Columns columns = columns_of(job, row, rows, block, count);
  if (columns.last == 0) return;
  scores_of(rows, buffers.q + row * layout.units_qk, buffers.k, layout.units_qk, columns.first,
            columns.last, buffers.s);
  SoftmaxRow of[kLargestRowTile];
  for (int64_t r = 0; r < rows; ++r) of[r] = softmax_row_of(job, row + r);
  HWY_ALIGN float alpha[kLargestRowTile] = {};
  uint8_t attends[kLargestRowTile * kLargestBlockKv];  // true: the row attends to the special key
  softmax_tile(job, of, rows, columns, buffers.s, buffers.largest + row, buffers.denominator + row,
               alpha, [&](int64_t r, const float* s) {
                 for (int32_t n = 0; n < special.count; ++n) {
                   attends[r * kLargestBlockKv + n] = s[special.index[n]] != kRemoved;
                 }
               });
  float* const o = buffers.o + row * layout.width_v;
  values_of(rows, buffers.s, buffers.v, layout.block_kv / kUnit, columns.first, columns.last, alpha,
            o, layout.width_v);
  if (special.count > 0) add_special(job, places, special, attends, columns, rows, buffers, o);
}

// The largest magnitude of a row that is stored as `o` times `factor`.
inline float largest_magnitude(const float* o, int64_t width, float factor) {
  float largest = 0;
  for (int64_t c = 0; c < width; ++c) largest = larger(largest, std::abs(o[c] * factor));
  return largest;
}

// Writes a row of O and its LSE from its sums. A denominator of 0 means that the row sees no key.
inline void finish_row(const TileJob& job, int64_t row, float largest, float denominator,
                       const float* o) {
  const ForwardProblem& p = *job.problem;
  const Arguments& args = *job.arguments;
  const int64_t head = job.head_of(row);
  const int64_t query = job.query_of(row);
  const int64_t position = job.sequence.q_begin + query;
  const double shift = alibi_of(job, head, query).shift;
  const RowScale scale = row_scale(job, head);
  constexpr double kLog2EExact = 1.4426950408889634, kLn2 = 0.69314718055994531;
  const double top = reference_of(largest, scale.power);  // as a power of two
  double natural = top * kLn2 + shift;
  double sum = denominator;
  double weight = 1;
  if (p.sinks.present) {
    const double sink = args.sinks[p.sinks.at(0, head)];
    if (denominator == 0) {
      natural = sink;
      sum = 1;
    } else {
      // Subtracts before scaling: the sink may equal the largest score to the last bit.
      const double score = static_cast<double>(largest) * scale.score + shift;
      const double power = static_cast<double>(largest) * scale.power;
      const double above = (sink - score) * kLog2EExact + (power - top);
      weight = std::exp2(-std::max(above, 0.0));
      // NaN for a sink of +inf, as for a score of +inf.
      sum = sum * weight + std::exp2(above - std::max(above, 0.0));
      if (above > 0) natural = sink;
    }
  }
  double factor = denominator == 0 ? 0 : weight / sum;
  const double probability = factor;  // probability of a score at the row's reference (exponent 0)
  if (p.dropout_p > 0) factor *= static_cast<double>(dropout_rescale(p.dropout_p));
  const float o_scale = p.o_scale.present ? args.o_scale[p.o_scale.at(job.batch, head)] : 1.0f;
  store_row(p.o_dtype, o, p.head_dim_v, static_cast<float>(factor), args.o,
            p.o.at(job.batch, head, position), o_scale);
  if (wants_largest(p)) {
    const double above = static_cast<double>(largest) * scale.power -
                         reference_of(largest, scale.power);  // exponent of the largest score
    const double score = static_cast<double>(largest) * scale.score + shift;
    const auto kNoScore = static_cast<double>(kRemoved);
    add_largest(p, args, job.batch, head,
                {largest_magnitude(o, p.head_dim_v, static_cast<float>(factor)),
                 denominator == 0 ? 0 : static_cast<float>(probability * std::exp2(above)),
                 static_cast<float>(denominator == 0          ? kNoScore
                                    : std::isnan(denominator) ? denominator
                                                              : score)});
  }
  if (!p.has_lse) return;
  const double lse = sum == 0 ? -std::numeric_limits<double>::infinity() : natural + std::log(sum);
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

// Processes the rows of KV head n of the job against a block that is read in place.
inline void attend_head(const TileJob& job, const Buffers& buffers, const SoftmaxRow* of, int64_t n,
                        const DirectBlock& block, const Columns& columns, RowsAhead& k_ahead,
                        RowsAhead& v_ahead) {
  const ForwardProblem& p = *job.problem;
  const Arguments& args = *job.arguments;
  const int64_t rows = job.group * job.queries, row = n * rows, head_kv = job.head_kv + n;
  const DirectRows k = rows_of_k(job, head_kv, block);
  DirectRows v = rows_of_v(job, head_kv, block);
  v.begin = std::max(v.begin, columns.first);
  v.end = columns.keys;
  const float* const q = buffers.q + row * direct_width(p.head_dim_qk);
  int64_t at[kDirectKeys];
  with_widening(p.k_dtype, [&](auto widen) {
    using Widen = decltype(widen);
    if (sizeof(typename Widen::T) > 1 || rows <= kMostRowsOfBytes) {
      return direct_scores<Widen>(q, rows, k, k_ahead, v_ahead, columns, buffers.s);
    }
    direct_scores<WidenF32>(q, rows, widen_rows<Widen>(k, buffers.k, at), k_ahead, v_ahead, columns,
                            buffers.s);
  });
  if (p.k_scale.present) {
    scale_columns(args.k_scale + p.k_scale.at(0, head_kv, 0), block.k_scale, columns, rows,
                  buffers.s);
  }
  HWY_ALIGN float alpha[kLargestRowTile] = {};
  HWY_ALIGN float scores[kDirectRows * kDirectKeys];
  softmax_tile(job, of + row, rows, columns, buffers.s, buffers.largest + row,
               buffers.denominator + row, alpha, [&](int64_t r, const float* s) HWY_ATTR {
                 for (int64_t c = columns.first; c < columns.last; c += kLanes) {
                   hn::Store(hn::Load(kF, s + c), kF, scores + r * kDirectKeys + c);
                 }
               });
  if (p.v_scale.present) {
    scale_columns(args.v_scale + p.v_scale.at(0, head_kv, 0), block.v_scale, columns, rows,
                  buffers.s);
  }
  int64_t turned[kDirectKeys];
  if (p.v_transposed) {
    v = rows_of_columns(job, v, reinterpret_cast<uint8_t*>(buffers.staging), turned);
  }
  const int64_t width = direct_width(p.head_dim_v);
  with_widening(p.v_dtype, [&](auto widen) {
    using Widen = decltype(widen);
    const DirectSums sums{buffers.s, scores, alpha, buffers.v + row * width, width};
    if (sizeof(typename Widen::T) > 1 || rows <= kMostRowsOfBytes) {
      return direct_products<Widen>(sums, rows, v);
    }
    direct_products<WidenF32>(sums, rows, widen_rows<Widen>(v, buffers.k, at));
  });
}

inline void attend_direct(const TileJob& job, const Buffers& buffers) {
  const ForwardProblem& p = *job.problem;
  const int64_t rows = job.rows(), heads = job.heads / job.group;
  load_direct_q(job, buffers.q);
  SoftmaxRow of[kDirectHeads * kDirectRows];
  for (int64_t r = 0; r < rows; ++r) of[r] = softmax_row_of(job, r);
  const int64_t width = direct_width(p.head_dim_v);
  std::fill_n(buffers.v, rows * width, 0.0f);
  DirectBlock blocks[2];
  const auto find = [&](int64_t first) -> const DirectBlock& {
    DirectBlock& found = blocks[first / kDirectKeys % 2];
    find_rows(job, first, std::clamp<int64_t>(job.keys.end - first, 0, kDirectKeys), found);
    return found;
  };
  const DirectBlock* here = &find(job.keys.begin);
  for (int64_t first = job.keys.begin; first < job.keys.end; first += kDirectKeys) {
    const DirectBlock& after = find(first + kDirectKeys);
    const Columns columns = columns_of(job, 0, rows, first, here->end);
    RowsAhead k_ahead(rows_of_k(job, job.head_kv, after), p.k_dtype, p.k, heads);
    RowsAhead v_ahead(rows_of_v(job, job.head_kv, after), p.v_dtype, p.v,
                      p.v_transposed ? 0 : heads);
    for (int64_t n = 0; n < heads && columns.last > 0; ++n) {
      attend_head(job, buffers, of, n, *here, columns, k_ahead, v_ahead);
    }
    here = &after;
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* const o = buffers.v + r * width;
    if (comes_in_pairs(p.v_dtype)) join_pairs(o, width);
    std::copy_n(o, job.layout->width_v, buffers.o + r * job.layout->width_v);
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
  // A direct job has Q in q, widened rows in k, O in v, and columns of a transposed V in staging.
  constexpr int64_t kRows = kDirectHeads * kDirectRows;
  layout.q = place(std::max(all_rows * layout.units_qk, kRows * direct_width(p.head_dim_qk)));
  layout.k = place(std::max(block_kv * layout.units_qk,
                            kDirectKeys * direct_width(std::max(p.head_dim_qk, p.head_dim_v))));
  layout.v = place(std::max(block_kv / kUnit * round_up(layout.width_v, kPanel),
                            kRows * direct_width(p.head_dim_v)));
  layout.o = place(all_rows * layout.width_v);
  layout.s = place(kLargestRowTile * kScoreStride);
  layout.state = place(2 * rows);
  layout.staging = place(std::max(
      {kLanes * layout.units_qk, kUnit * layout.width_v, kDirectKeys * layout.width_v / 4}));
  layout.bytes = end;
  return layout;
}

inline constexpr SimdKernels kKernels{layout_for, attend, merge};

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
