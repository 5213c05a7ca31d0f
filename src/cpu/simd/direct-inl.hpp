// Few rows against many keys: memory-bound, and packing K and V would take longer than both
// products. Rows are read in place and widened in registers:
//
//   for each block of kDirectKeys keys:   find where their rows lie
//     for each KV head of the job:        S = Q K^T               lanes along Dqk
//                                         P = softmax(S)
//                                         O = O * alpha + P V     lanes are columns of V
//
// A block is processed for all heads before the next one, since in pages the heads of a key are adjacent, and
// the rows of a head are kilobytes apart. Meanwhile the next block is prefetched, row by row in memory order.
//
// The elements of Q and O are in the order in which widening produces K and V (widen-inl.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "cpu/simd/pack-inl.hpp"
#include "cpu/simd/scores-inl.hpp"
#include "cpu/simd/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline constexpr int64_t kDirectKeys = 32;
inline constexpr int kKeysAtOnce = kManyRegisters ? 4 : 2;
// With more rows, fp8 is widened once into memory, not once per four rows in registers.
inline constexpr int64_t kMostRowsOfBytes = 8;

// Floats per row of Q, or of O.
inline int64_t direct_width(int64_t head_dim) { return round_up(head_dim, kMostWidened * kLanes); }

// The addresses of a block's rows for KV head 0, in bytes (scales: in elements). Columns whose key
// is not read have the address of the nearest one that is.
struct DirectBlock {
  int64_t begin = 0;  // keys of the block before this one are not read
  int64_t end = 0;    // number of keys in the block
  int64_t k[kDirectKeys];
  int64_t v[kDirectKeys];
  int64_t k_scale[kDirectKeys];
  int64_t v_scale[kDirectKeys];
};

// Fills in keys [first, first + count) of the job's sequence.
inline void find_rows(const TileJob& job, int64_t first, int64_t count, DirectBlock& block) {
  const ForwardProblem& p = *job.problem;
  KeyPlace places[kDirectKeys];
  block.begin = job.first_seen > first ? job.first_seen - first : 0;
  block.end = count;
  if (block.begin >= count) return;
  KeyPlaces(p, *job.arguments, job.sequence, job.batch)
      .fill(first + block.begin, count - block.begin, places + block.begin);
  const auto k_bytes = static_cast<int64_t>(size_of(p.k_dtype));
  const auto v_bytes = static_cast<int64_t>(size_of(p.v_dtype));
  const bool scaled = p.k_scale.present || p.v_scale.present;
  for (int64_t j = 0; j < kDirectKeys; ++j) {
    const KeyPlace& place = places[std::clamp(j, block.begin, count - 1)];
    block.k[j] = p.k.at(place.lead, 0, place.row) * k_bytes;
    block.v[j] = p.v_at(place.lead, 0, place.row, 0) * v_bytes;
    if (!scaled) continue;
    const int64_t n = place.scale_row / p.kv_scale_block;
    block.k_scale[j] = p.k_scale.at(place.lead, 0, n);
    block.v_scale[j] = p.v_scale.at(place.lead, 0, n);
  }
}

// The rows of K or V of one KV head in a block.
struct DirectRows {
  const std::byte* base = nullptr;
  const int64_t* at = nullptr;  // bytes from base
  int64_t begin = 0;            // first column of the block
  int64_t end = 0;
  int64_t width = 0;  // in elements

  template <class T>
  const T* row(int64_t j) const {
    return reinterpret_cast<const T*>(base + at[j]);
  }
};

inline DirectRows rows_of_k(const TileJob& job, int64_t head_kv, const DirectBlock& block) {
  const ForwardProblem& p = *job.problem;
  const auto first = p.k.at(0, head_kv, 0) * static_cast<int64_t>(size_of(p.k_dtype));
  return {static_cast<const std::byte*>(job.arguments->k) + first, block.k, block.begin, block.end,
          p.head_dim_qk};
}

inline DirectRows rows_of_v(const TileJob& job, int64_t head_kv, const DirectBlock& block) {
  const ForwardProblem& p = *job.problem;
  const auto first = p.v.at(0, head_kv, 0) * static_cast<int64_t>(size_of(p.v_dtype));
  return {static_cast<const std::byte*>(job.arguments->v) + first, block.v, block.begin, block.end,
          p.head_dim_v};
}

// Prefetches the rows of a block of K or V, for all heads of a job, a few at a time and in memory
// order, which the hardware prefetcher recognises. They go to the second-level cache.
class RowsAhead {
 public:
  RowsAhead(const DirectRows& rows, DType dtype, const RowStrides& strides, int64_t heads)
      : rows_(rows),
        heads_(heads),
        head_bytes_(strides.head * static_cast<int64_t>(size_of(dtype))),
        row_bytes_(rows.width * static_cast<int64_t>(size_of(dtype))),
        heads_first_(std::abs(strides.head) < std::abs(strides.row)),
        key_(rows.begin) {}

  // Always inline: GCC assumes that a function that only prefetches has no effect, and drops it.
  HWY_INLINE void ask(int64_t count) {
    constexpr int64_t kLine = 64;
    for (; count > 0 && key_ < rows_.end && head_ < heads_; --count) {
      const std::byte* const row = rows_.base + rows_.at[key_] + head_ * head_bytes_;
      for (int64_t b = 0; b < row_bytes_; b += kLine) __builtin_prefetch(row + b, 0, 2);
      if (heads_first_) {
        if (++head_ == heads_) head_ = 0, ++key_;
      } else {
        if (++key_ == rows_.end) key_ = rows_.begin, ++head_;
      }
    }
  }

 private:
  const DirectRows rows_;
  const int64_t heads_, head_bytes_, row_bytes_;
  const bool heads_first_;
  int64_t key_, head_ = 0;
};

// Builds rows from the columns of a V that is stored transposed; its elements are bytes.
inline DirectRows rows_of_columns(const TileJob& job, const DirectRows& v, uint8_t* out,
                                  int64_t (&at)[kDirectKeys]) {
  const int64_t stride = job.problem->v.row;
  for (int64_t j = v.begin; j < v.end; ++j) {
    at[j] = j * v.width;
    const auto* const column = v.row<uint8_t>(j);
    for (int64_t d = 0; d < v.width; ++d) out[at[j] + d] = column[d * stride];
  }
  return {reinterpret_cast<const std::byte*>(out), at, v.begin, v.end, v.width};
}

inline void load_direct_q(const TileJob& job, float* out) {
  const ForwardProblem& p = *job.problem;
  const int64_t depth = direct_width(p.head_dim_qk);
  for (int64_t r = 0; r < job.rows(); ++r) {
    float* const row = out + r * depth;
    load_row(p.dtype, job.arguments->q,
             p.q.at(job.batch, job.head_of(r), job.sequence.q_begin + job.query_of(r)),
             p.head_dim_qk, 1.0f, row, depth);
    if (comes_in_pairs(p.k_dtype)) part_pairs(row, depth);
  }
}

// Adds up blocks of four lanes.
template <class D>
HWY_INLINE auto add_blocks(D d, hn::Vec<D> v) {
  if constexpr (HWY_LANES(float) == 4 || hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Sums four vectors over their lanes, each in the same order.
HWY_INLINE auto sums_of(VecF a, VecF b, VecF c, VecF d) {
  const hn::Repartition<uint64_t, F> wide;
  const VecF first = hn::Add(hn::InterleaveLower(kF, a, b), hn::InterleaveUpper(kF, a, b));
  const VecF last = hn::Add(hn::InterleaveLower(kF, c, d), hn::InterleaveUpper(kF, c, d));
  const auto low = hn::BitCast(wide, first), high = hn::BitCast(wide, last);
  return add_blocks(kF, hn::Add(hn::BitCast(kF, hn::InterleaveLower(wide, low, high)),
                                hn::BitCast(kF, hn::InterleaveUpper(wide, low, high))));
}

// s[r * kScoreStride + i] = q[r] . k[i]
template <class Widen, int kRows, int kKeys>
HWY_NOINLINE void dot_tile(const float* q, int64_t depth, const DirectRows& k, int64_t j,
                           float* s) {
  using T = typename Widen::T;
  constexpr int kVecs = Widen::kVecs;
  constexpr int64_t kChunk = kVecs * kLanes;
  VecF acc[kRows][kKeys];
  const T* key[kKeys];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) {
    key[i] = k.row<T>(j + i);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r][i] = hn::Zero(kF);
  }
  const auto add = [&](int i, int64_t c, const T* from) HWY_ATTR {
    VecF value[kVecs];
    Widen::load(from, value);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r][i] = hn::MulAdd(hn::LoadU(kF, q + r * depth + c + v * kLanes), value[v], acc[r][i]);
      }
    }
  };
  int64_t c = 0;
  for (; c + kChunk <= k.width; c += kChunk) {
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) add(i, c, key[i] + c);
  }
  if (c < k.width) {
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) add(i, c, RowEnd<Widen>(key[i] + c, k.width - c).data);
  }
  const hn::FixedTag<float, 4> four;
  const auto unit = hn::Set(four, Widen::kUnit);
  if constexpr (kKeys == 4) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto sums = sums_of(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
      hn::StoreU(hn::Mul(sums, unit), four, s + r * kScoreStride);
    }
  } else {
    static_assert(kRows == 4);
    HWY_ALIGN float sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      hn::Store(hn::Mul(sums_of(acc[0][i], acc[1][i], acc[2][i], acc[3][i]), unit), four, sums);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) s[r * kScoreStride + i] = sums[r];
    }
  }
}

// Widens the rows to fp32 in `out`, in the order of `Widen`, padded to direct_width.
template <class Widen>
DirectRows widen_rows(const DirectRows& rows, float* out, int64_t (&at)[kDirectKeys]) {
  constexpr int64_t kChunk = Widen::kVecs * kLanes;
  const int64_t width = direct_width(rows.width);
  for (int64_t j = 0; j < kDirectKeys; ++j) {
    const int64_t row = std::clamp(j, rows.begin, rows.end - 1);
    float* const to = out + row * width;
    at[j] = row * width * static_cast<int64_t>(sizeof(float));
    if (j != row) continue;
    for (int64_t c = 0; c < width; c += kChunk) {
      const int64_t count = std::clamp<int64_t>(rows.width - c, 0, kChunk);
      const auto* const from = rows.row<typename Widen::T>(j) + c;
      VecF value[Widen::kVecs];
      Widen::load(count == kChunk ? from : RowEnd<Widen>(from, count).data, value);
      for (int n = 0; n < Widen::kVecs; ++n) {
        hn::Store(hn::Mul(value[n], hn::Set(kF, Widen::kUnit)), kF, to + c + n * kLanes);
      }
    }
  }
  return {reinterpret_cast<const std::byte*>(out), at, rows.begin, rows.end, width};
}

// Scores of all rows. Scores of keys that are not read are removed later.
template <class Widen>
void direct_scores(const float* q, int64_t rows, const DirectRows& k, RowsAhead& k_ahead,
                   RowsAhead& v_ahead, const Columns& columns, float* s) {
  const int64_t depth = direct_width(k.width);
  for (int64_t j = columns.first; j < columns.last; j += 4) {
    k_ahead.ask(4);
    v_ahead.ask(4);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      for (int64_t i = j; i < j + 4; i += kKeysAtOnce) {
        dot_tile<Widen, 4, kKeysAtOnce>(q + r * depth, depth, k, i, s + r * kScoreStride + i);
      }
    }
    for (; r + 2 <= rows; r += 2) {
      dot_tile<Widen, 2, 4>(q + r * depth, depth, k, j, s + r * kScoreStride + j);
    }
    if (r < rows) dot_tile<Widen, 1, 4>(q + r * depth, depth, k, j, s + r * kScoreStride + j);
  }
}

// Multiplies the columns of all rows by the scales of their keys.
inline void scale_columns(const float* scales, const int64_t* at, const Columns& columns,
                          int64_t rows, float* s) {
  HWY_ALIGN float scale[kDirectKeys];
  for (int64_t j = columns.first; j < columns.last; ++j) scale[j] = scales[at[j]];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = columns.first; j < columns.last; j += kLanes) {
      float* const to = s + r * kScoreStride + j;
      hn::Store(hn::Mul(hn::Load(kF, to), hn::Load(kF, scale + j)), kF, to);
    }
  }
}

// The inputs and the output of P V for some rows.
struct DirectSums {
  const float* p;       // [rows][kScoreStride]
  const float* scores;  // [rows][kDirectKeys], kRemoved if the pair does not attend
  const float* alpha;
  float* o;
  int64_t width;  // elements per row of o

  DirectSums from(int64_t row) const {
    return {p + row * kScoreStride, scores + row * kDirectKeys, alpha + row, o + row * width,
            width};
  }
};

// o[r] = o[r] * alpha[r] + P V for columns where V may not be finite: such a value is added only
// for pairs that attend. Finite columns get the same bits as without this function.
template <class Widen>
HWY_NOINLINE void choose_values(const DirectSums& sums, int64_t rows, const DirectRows& v,
                                int64_t column, int64_t count) {
  constexpr int kVecs = Widen::kVecs;
  for (int64_t r = 0; r < rows; ++r) {
    const DirectSums row = sums.from(r);
    VecF acc[kVecs], special[kVecs];
    for (int n = 0; n < kVecs; ++n) acc[n] = special[n] = hn::Zero(kF);
    for (int64_t j = v.begin; j < v.end; ++j) {
      const bool attends = row.scores[j] != kRemoved;
      const VecF p = hn::Set(kF, attends ? row.p[j] : 0.0f);
      VecF value[kVecs];
      Widen::load(RowEnd<Widen>(v.row<typename Widen::T>(j) + column, count).data, value);
      for (int n = 0; n < kVecs; ++n) {
        const auto finite = hn::IsFinite(value[n]);
        acc[n] = hn::MulAdd(p, hn::IfThenElseZero(finite, value[n]), acc[n]);
        if (!attends) continue;
        special[n] = hn::MulAdd(p, hn::IfThenZeroElse(finite, value[n]), special[n]);
      }
    }
    for (int n = 0; n < kVecs; ++n) {
      float* const to = row.o + column + n * kLanes;
      const VecF sum = hn::MulAdd(hn::Load(kF, to), hn::Set(kF, *row.alpha),
                                  hn::Mul(acc[n], hn::Set(kF, Widen::kUnit)));
      const auto none = hn::Eq(special[n], hn::Zero(kF));
      hn::Store(hn::IfThenElse(none, sum, hn::Add(sum, special[n])), kF, to);
    }
  }
}

// o[r] = o[r] * alpha[r] + P V in kVecs vectors of columns; `count` of their elements are in V.
template <class Widen, int kRows, int kVecs, bool kEnd>
HWY_NOINLINE void add_values(const DirectSums& sums, const DirectRows& v, int64_t column,
                             int64_t count) {
  using T = typename Widen::T;
  VecF acc[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < kVecs; ++n) acc[r][n] = hn::Zero(kF);
  }
  for (int64_t j = v.begin; j < v.end; ++j) {
    const T* const row = v.row<T>(j) + column;
    VecF factor[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) factor[r] = hn::Set(kF, sums.p[r * kScoreStride + j]);
#pragma GCC unroll 4
    for (int first = 0; first < kVecs; first += Widen::kVecs) {
      VecF value[Widen::kVecs];
      if constexpr (kEnd) {
        Widen::load(RowEnd<Widen>(row, count).data, value);
      } else {
        Widen::load(row + first * kLanes, value);
      }
#pragma GCC unroll 4
      for (int n = 0; n < Widen::kVecs; ++n) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          acc[r][first + n] = hn::MulAdd(factor[r], value[n], acc[r][first + n]);
        }
      }
    }
  }
  // A value of V that is not finite is in the sums of every row, even of rows that do not attend to it.
  VecF all = acc[0][0];
#pragma GCC unroll 4
  for (int n = 1; n < kVecs; ++n) all = hn::Add(all, acc[0][n]);
  if (!hn::AllTrue(kF, hn::IsFinite(all))) {
    constexpr int64_t kChunk = Widen::kVecs * kLanes;
    for (int64_t c = 0; c < count; c += kChunk) {
      choose_values<Widen>(sums, kRows, v, column + c, std::min(kChunk, count - c));
    }
    return;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const VecF factor = hn::Set(kF, sums.alpha[r]);
#pragma GCC unroll 4
    for (int n = 0; n < kVecs; ++n) {
      float* const to = sums.o + r * sums.width + column + n * kLanes;
      const VecF sum = hn::Mul(acc[r][n], hn::Set(kF, Widen::kUnit));
      hn::Store(hn::MulAdd(hn::Load(kF, to), factor, sum), kF, to);
    }
  }
}

template <class Widen, int kRows>
void add_all_values(const DirectSums& sums, const DirectRows& v) {
  constexpr int kVecs = kManyRegisters ? 4 : 2;
  constexpr int64_t kTile = kVecs * kLanes, kChunk = Widen::kVecs * kLanes;
  int64_t c = 0;
  for (; c + kTile <= v.width; c += kTile) {
    add_values<Widen, kRows, kVecs, false>(sums, v, c, kTile);
  }
  for (; c < v.width; c += kChunk) {
    add_values<Widen, kRows, Widen::kVecs, true>(sums, v, c, std::min(kChunk, v.width - c));
  }
}

template <class Widen>
void direct_products(const DirectSums& sums, int64_t rows, const DirectRows& v) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) add_all_values<Widen, 4>(sums.from(r), v);
  for (; r + 2 <= rows; r += 2) add_all_values<Widen, 2>(sums.from(r), v);
  if (r < rows) add_all_values<Widen, 1>(sums.from(r), v);
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
