// Few rows against many keys: memory is the limit, and packing K and V would take longer than both
// products. Rows are read where they lie:
//
//   for each block of kDirectKeys keys:
//     for each KV head of the job:   S = Q K^T               four keys at once, lanes along Dqk
//                                    P = softmax(S)
//                                    O = O * alpha + P V     lanes are columns of V
//
// Rows that are not full vectors of fp32 are widened into the cache on the way. All heads of a block
// take turns, since in pages the heads of a key lie side by side, and the rows of a head kilobytes
// apart, where no processor foresees the next one. So each row of K that is read asks for the same
// key's row of V, and each row of V for one of the K that comes next.
#pragma once

#include <algorithm>

#include "cpu/simd/pack-inl.hpp"
#include "cpu/simd/scores-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline constexpr int64_t kDirectKeys = 32;
inline constexpr int64_t kKeysAtOnce = 4;
inline constexpr bool kManyRegisters = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64;

inline int64_t depth_of(const ForwardProblem& p) { return round_up(p.head_dim_qk, kLanes); }

// The values of a block, from the first to the last that is read.
struct DirectValues {
  int64_t begin = 0;
  int64_t end = 0;
  const float* of[kDirectKeys];
};

// Whose rows of K are read next.
struct NextKeys {
  const BlockPlaces& places;
  int64_t head_kv;
};

inline void prefetch_row(DType dtype, const void* base, int64_t first, int64_t width) {
  constexpr int64_t kLine = 64;
  const auto size = static_cast<int64_t>(size_of(dtype));
  const auto* const row = static_cast<const std::byte*>(base) + first * size;
  for (int64_t b = 0; b < width * size; b += kLine) __builtin_prefetch(row + b);
}

inline void prefetch_k(const TileJob& job, int64_t head_kv, const KeyPlace& place) {
  const ForwardProblem& p = *job.problem;
  prefetch_row(p.k_dtype, job.arguments->k, p.k.at(place.lead, head_kv, place.row), p.head_dim_qk);
}

inline void prefetch_v(const TileJob& job, const KeyPlace& place) {
  const ForwardProblem& p = *job.problem;
  if (p.v_transposed) return;
  prefetch_row(p.v_dtype, job.arguments->v, p.v_at(place.lead, job.head_kv, place.row, 0),
               p.head_dim_v);
}

// Only fp8 has a scale.
inline bool lies_as_read(DType dtype, int64_t width) {
  return dtype == DType::f32 && width % kLanes == 0;
}

// Row of a key in full vectors, where it lies or in `staging`.
inline const float* direct_k(const TileJob& job, const KeyPlace& place, float* staging) {
  const ForwardProblem& p = *job.problem;
  const Arguments& args = *job.arguments;
  const int64_t first = p.k.at(place.lead, job.head_kv, place.row);
  if (lies_as_read(p.k_dtype, p.head_dim_qk)) return static_cast<const float*>(args.k) + first;
  load_row(p.k_dtype, args.k, first, p.head_dim_qk,
           scale_at(p, p.k_scale, args.k_scale, place, job.head_kv), staging, depth_of(p));
  return staging;
}

inline const float* direct_v(const TileJob& job, const KeyPlace& place, float* staging) {
  const ForwardProblem& p = *job.problem;
  if (lies_as_read(p.v_dtype, p.head_dim_v)) {
    return static_cast<const float*>(job.arguments->v) +
           p.v_at(place.lead, job.head_kv, place.row, 0);
  }
  load_v_row(job, place, staging);
  return staging;
}

inline void load_direct_q(const TileJob& job, float* out) {
  const ForwardProblem& p = *job.problem;
  const int64_t depth = depth_of(p);
  for (int64_t r = 0; r < job.rows(); ++r) {
    load_row(p.dtype, job.arguments->q,
             p.q.at(job.batch, job.head_of(r), job.sequence.q_begin + job.query_of(r)),
             p.head_dim_qk, 1.0f, out + r * depth, depth);
  }
}

// Blocks of four lanes added up into one.
template <class D>
HWY_INLINE auto add_blocks(D d, hn::Vec<D> v) {
  if constexpr (HWY_LANES(float) == 4 || hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// out[i] = the sum over the lanes of v[i], each in the same order.
HWY_INLINE void store_sums(const VecF (&v)[kKeysAtOnce], float* out) {
  const hn::Repartition<uint64_t, F> wide;
  const VecF first =
      hn::Add(hn::InterleaveLower(kF, v[0], v[1]), hn::InterleaveUpper(kF, v[0], v[1]));
  const VecF last =
      hn::Add(hn::InterleaveLower(kF, v[2], v[3]), hn::InterleaveUpper(kF, v[2], v[3]));
  const auto a = hn::BitCast(wide, first), b = hn::BitCast(wide, last);
  const VecF sums = hn::Add(hn::BitCast(kF, hn::InterleaveLower(wide, a, b)),
                            hn::BitCast(kF, hn::InterleaveUpper(wide, a, b)));
  hn::StoreU(add_blocks(kF, sums), hn::FixedTag<float, 4>(), out);
}

// s[r * kScoreStride + i] = q[r] . k[i]
template <int kRows>
HWY_NOINLINE void dot_rows(const float* q, const float* const* k, int64_t depth, float* s) {
  VecF acc[kRows][kKeysAtOnce];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kKeysAtOnce; ++i) acc[r][i] = hn::Zero(kF);
  }
  const float* const k0 = k[0];
  const float* const k1 = k[1];
  const float* const k2 = k[2];
  const float* const k3 = k[3];
  for (int64_t c = 0; c < depth; c += kLanes) {
    const VecF key[kKeysAtOnce] = {hn::LoadU(kF, k0 + c), hn::LoadU(kF, k1 + c),
                                   hn::LoadU(kF, k2 + c), hn::LoadU(kF, k3 + c)};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const VecF query = hn::LoadU(kF, q + r * depth + c);
#pragma GCC unroll 4
      for (int i = 0; i < kKeysAtOnce; ++i) acc[r][i] = hn::MulAdd(query, key[i], acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) store_sums(acc[r], s + r * kScoreStride);
}

// Scores of all rows; those of keys that are not read are 0.
inline void direct_scores(const TileJob& job, const BlockPlaces& places, const Columns& columns,
                          const float* q, float* staging, float* s) {
  const int64_t rows = job.rows();
  const int64_t depth = depth_of(*job.problem);
  for (int64_t j = columns.first; j < columns.last; j += kKeysAtOnce) {
    const float* keys[kKeysAtOnce];
    for (int64_t i = 0; i < kKeysAtOnce; ++i) {
      float* const row = staging + i * depth;
      if (j + i < places.begin || j + i >= columns.keys) {
        std::fill_n(row, depth, 0.0f);
        keys[i] = row;
        continue;
      }
      keys[i] = direct_k(job, places.of[j + i], row);
      prefetch_v(job, places.of[j + i]);
    }
    int64_t r = 0;
    if constexpr (kManyRegisters) {
      for (; r + 4 <= rows; r += 4)
        dot_rows<4>(q + r * depth, keys, depth, s + r * kScoreStride + j);
    }
    for (; r + 2 <= rows; r += 2) dot_rows<2>(q + r * depth, keys, depth, s + r * kScoreStride + j);
    if (r < rows) dot_rows<1>(q + r * depth, keys, depth, s + r * kScoreStride + j);
  }
}

// The rows of V that the columns need; those that are not all finite become zeros and are listed, as
// pack_v has them.
inline void direct_values(const TileJob& job, const BlockPlaces& places, const NextKeys& next,
                          const Columns& columns, float* staging, SpecialKeys& special,
                          DirectValues& values) {
  const int64_t width = job.layout->width_v;
  special.count = 0;
  values.begin = std::max(columns.first, places.begin);
  values.end = columns.keys;
  for (int64_t j = values.begin; j < values.end; ++j) {
    float* const row = staging + j * width;
    values.of[j] = direct_v(job, places.of[j], row);
    if (j >= next.places.begin && j < next.places.end) {
      prefetch_k(job, next.head_kv, next.places.of[j]);
    }
    if (all_finite(values.of[j], width)) continue;
    special.index[special.count++] = static_cast<int16_t>(j);
    std::fill_n(row, width, 0.0f);
    values.of[j] = row;
  }
}

// o[r] = o[r] * alpha[r] + P V
template <int kRows, int kVecs>
HWY_NOINLINE void add_values(const float* p, const DirectValues& values, int64_t column,
                             const float* alpha, float* o, int64_t width) {
  VecF acc[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(kF);
  }
  for (int64_t j = values.begin; j < values.end; ++j) {
    const float* const row = values.of[j] + column;
    VecF value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) value[v] = hn::LoadU(kF, row + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const VecF factor = hn::Set(kF, p[r * kScoreStride + j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(factor, value[v], acc[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const VecF factor = hn::Set(kF, alpha[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      float* const to = o + r * width + column + v * kLanes;
      hn::Store(hn::MulAdd(hn::Load(kF, to), factor, acc[r][v]), kF, to);
    }
  }
}

template <int kRows>
void add_all_values(const float* p, const DirectValues& values, const float* alpha, float* o,
                    int64_t width) {
  int64_t c = 0;
  if constexpr (kManyRegisters) {
    for (; c + 4 * kLanes <= width; c += 4 * kLanes) {
      add_values<kRows, 4>(p, values, c, alpha, o, width);
    }
  }
  for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
    add_values<kRows, 2>(p, values, c, alpha, o, width);
  }
  if (c < width) add_values<kRows, 1>(p, values, c, alpha, o, width);
}

inline void direct_products(int64_t rows, const float* p, const DirectValues& values,
                            const float* alpha, float* o, int64_t width) {
  int64_t r = 0;
  const auto step = [&](auto tile, int64_t count) {
    tile(p + r * kScoreStride, values, alpha + r, o + r * width, width);
    r += count;
  };
  while (r + 4 <= rows) step(add_all_values<4>, 4);
  if (r + 2 <= rows) step(add_all_values<2>, 2);
  if (r < rows) step(add_all_values<1>, 1);
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
