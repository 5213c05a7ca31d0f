// Packs Q, K and V for the micro-kernels. A "unit" is the contents of one lane: an fp32 element, or
// two neighbouring bf16 elements along the summed dimension.
//
//   Q     [row tile][unit of Dqk][row]        consecutive broadcasts; AMX: [row][unit]
//   K^T   [panel][unit of Dqk][kPanel keys]   two vectors per step
//   V     [panel][unit of keys][kPanel columns of Dv]
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/simd/convert-inl.hpp"
#include "cpu/simd/tile_job.hpp"
#include "problem/key_places.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

#if defined(FLASHCORE_SIMD_BF16)
inline constexpr bool kPairs = true;
#else
inline constexpr bool kPairs = false;
#endif
inline constexpr int64_t kUnit = kPairs ? 2 : 1;  // elements per unit
#if defined(FLASHCORE_SIMD_AMX)
inline constexpr bool kMatrix = true;  // 16 x 16 units at once
#else
inline constexpr bool kMatrix = false;
#endif
inline constexpr int64_t kUnitsStep = kMatrix ? 16 : 4;            // Dqk is padded to multiples
inline constexpr int64_t kColumnStep = kMatrix ? kPanel : kLanes;  // keys of a tile likewise
inline constexpr int64_t kRowStep = kMatrix ? 16 : 1;              // memory for rows likewise

// One row of Q or K as units, padded with zeros.
inline void load_units(const ForwardProblem& p, DType dtype, const void* base, int64_t first,
                       float scale, float* out, int64_t units) {
  if constexpr (kPairs) {  // bf16 unconverted
    auto* const bytes = reinterpret_cast<std::byte*>(out);
    const size_t used = static_cast<size_t>(p.head_dim_qk) * 2;
    std::memcpy(bytes, static_cast<const uint16_t*>(base) + first, used);
    std::memset(bytes + used, 0, static_cast<size_t>(units) * 4 - used);
  } else {
    load_row(dtype, base, first, p.head_dim_qk, scale, out, units);
  }
}

// kLanes floats in blocks of four, each from another row: rows 0, 4, 8, ...
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* in, int64_t stride) {
  if constexpr (HWY_LANES(float) == 4 || hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, in);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, load_blocks(half, in + kRows * stride, stride),
                       load_blocks(half, in, stride));
  }
}

// out[c * kPanel + r] = in[r * stride + c] for kLanes rows r and `columns` (a multiple of 4).
inline void transpose_rows(const float* in, int64_t stride, int64_t columns, float* out) {
  for (int64_t c = 0; c < columns; c += 4) {
    const VecF v0 = load_blocks(kF, in + c, stride);
    const VecF v1 = load_blocks(kF, in + c + stride, stride);
    const VecF v2 = load_blocks(kF, in + c + 2 * stride, stride);
    const VecF v3 = load_blocks(kF, in + c + 3 * stride, stride);
    const VecF even_low = hn::InterleaveLower(kF, v0, v2);
    const VecF odd_low = hn::InterleaveLower(kF, v1, v3);
    const VecF even_high = hn::InterleaveUpper(kF, v0, v2);
    const VecF odd_high = hn::InterleaveUpper(kF, v1, v3);
    float* const to = out + c * kPanel;
    hn::Store(hn::InterleaveLower(kF, even_low, odd_low), kF, to);
    hn::Store(hn::InterleaveUpper(kF, even_low, odd_low), kF, to + kPanel);
    hn::Store(hn::InterleaveLower(kF, even_high, odd_high), kF, to + 2 * kPanel);
    hn::Store(hn::InterleaveUpper(kF, even_high, odd_high), kF, to + 3 * kPanel);
  }
}

// The addresses of a block's keys.
struct BlockPlaces {
  KeyPlace of[kLargestBlockKv];
  int64_t begin = 0;  // keys of the block before this one are not read
  int64_t end = 0;    // number of keys in the block
};

// Fills in keys [first, first + count) of the job's sequence.
inline void find_places(const TileJob& job, int64_t first, int64_t count, BlockPlaces& places) {
  places.begin = job.first_seen > first ? job.first_seen - first : 0;
  places.end = count;
  if (places.begin >= count) return;
  KeyPlaces(*job.problem, *job.arguments, job.sequence, job.batch)
      .fill(first + places.begin, count - places.begin, places.of + places.begin);
}

inline float scale_at(const ForwardProblem& p, const ScaleInput& scale, const float* data,
                      const KeyPlace& place, int64_t head_kv) {
  if (!scale.present) return 1.0f;
  return data[scale.at(place.lead, head_kv, place.scale_row / p.kv_scale_block)];
}

// Packs `count` keys into panels; missing keys of a panel are zero, and panels without keys are left out.
inline void pack_k(const TileJob& job, const BlockPlaces& places, int64_t count, float* staging,
                   float* out) {
  const ForwardProblem& p = *job.problem;
  const Arguments& args = *job.arguments;
  const int64_t units = job.layout->units_qk;
  for (int64_t j = places.begin / kPanel * kPanel; j < round_up(count, kPanel); j += kLanes) {
    float* const to = out + j / kPanel * units * kPanel + j % kPanel;
    for (int64_t r = 0; r < kLanes; ++r) {
      float* const row = staging + r * units;
      if (j + r < places.begin || j + r >= count) {
        std::memset(row, 0, static_cast<size_t>(units) * sizeof(float));
        continue;
      }
      const KeyPlace& place = places.of[j + r];
      load_units(p, p.k_dtype, args.k, p.k.at(place.lead, job.head_kv, place.row),
                 scale_at(p, p.k_scale, args.k_scale, place, job.head_kv), row, units);
    }
    transpose_rows(staging, units, units, to);
  }
}

// Loads a column of a V that is stored transposed, like load_row() loads a row; its elements are bytes.
inline void load_column(const ForwardProblem& p, const void* base, int64_t first, float scale,
                        float* out, int64_t padded) {
  constexpr int64_t kPiece = 128;
  uint8_t piece[kPiece];
  for (int64_t d = 0; d < p.head_dim_v; d += kPiece) {
    const int64_t count = std::min(kPiece, p.head_dim_v - d);
    const uint8_t* const in = static_cast<const uint8_t*>(base) + first + d * p.v.row;
    for (int64_t i = 0; i < count; ++i) piece[i] = in[i * p.v.row];
    const bool last = d + count == p.head_dim_v;
    load_row(p.v_dtype, piece, 0, count, scale, out + d, last ? padded - d : count);
  }
}

// Loads one row of V, scaled, padded to width_v.
inline void load_v_row(const TileJob& job, const KeyPlace& place, float* out) {
  const ForwardProblem& p = *job.problem;
  const Arguments& args = *job.arguments;
  const int64_t first = p.v_at(place.lead, job.head_kv, place.row, 0);
  const float scale = scale_at(p, p.v_scale, args.v_scale, place, job.head_kv);
  if (p.v_transposed) {
    load_column(p, args.v, first, scale, out, job.layout->width_v);
  } else {
    load_row(p.v_dtype, args.v, first, p.head_dim_v, scale, out, job.layout->width_v);
  }
}

// x * 0 is NaN if x is not finite, so the sum shows whether any x is not. Four independent sums, so
// that no addition waits for the one before.
inline bool all_finite(const float* row, int64_t width) {
  const VecF zero = hn::Zero(kF);
  VecF a = zero, b = zero, d = zero, e = zero;
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) {
    a = hn::MulAdd(hn::LoadU(kF, row + c), zero, a);
    b = hn::MulAdd(hn::LoadU(kF, row + c + kLanes), zero, b);
    d = hn::MulAdd(hn::LoadU(kF, row + c + 2 * kLanes), zero, d);
    e = hn::MulAdd(hn::LoadU(kF, row + c + 3 * kLanes), zero, e);
  }
  for (; c < width; c += kLanes) a = hn::MulAdd(hn::LoadU(kF, row + c), zero, a);
  const VecF sum = hn::Add(hn::Add(a, b), hn::Add(d, e));
  return hn::AllTrue(kF, hn::Eq(sum, sum));
}

// Stores rows of fp32 (kUnit of them, consecutive in `rows`) into unit `unit` of every panel.
inline void store_v_units(const float* rows, int64_t width, int64_t unit, int64_t units,
                          float* out) {
  for (int64_t c = 0; c < width; c += kLanes) {
    float* const to = out + (c / kPanel * units + unit) * kPanel + c % kPanel;
    if constexpr (kPairs) {  // they come from bf16, so the upper half is exact
      const VecU low = hn::BitCast(kU, hn::LoadU(kF, rows + c));
      const VecU high = hn::BitCast(kU, hn::LoadU(kF, rows + width + c));
      hn::Store(hn::BitCast(kF, hn::Or(hn::ShiftRight<16>(low), high)), kF, to);
    } else {
      hn::Store(hn::LoadU(kF, rows + c), kF, to);
    }
  }
}

// Packs the values of `count` keys into panels, with zeros up to full units of the block. Rows with
// infinities or NaN are left out (zero) and listed: P times them must be decided pair by pair.
inline void pack_v(const TileJob& job, const BlockPlaces& places, int64_t count, float* staging,
                   float* out, SpecialKeys& special) {
  const TileLayout& layout = *job.layout;
  const int64_t width = layout.width_v;
  const int64_t units = layout.block_kv / kUnit;
  special.count = 0;
  for (int64_t j = places.begin / kPanel * kPanel; j < round_up(count, kPanel); j += kUnit) {
    for (int64_t i = 0; i < kUnit; ++i) {
      float* const row = staging + i * width;
      bool zero = j + i < places.begin || j + i >= count;
      if (!zero) {
        load_v_row(job, places.of[j + i], row);
        if (!all_finite(row, width)) {
          special.index[special.count++] = static_cast<int16_t>(j + i);
          zero = true;
        }
      }
      if (zero) std::memset(row, 0, static_cast<size_t>(width) * sizeof(float));
    }
    store_v_units(staging, width, j / kUnit, units, out);
  }
}

// Packs rows [first, first + rows) of the job into one tile: out[unit * rows + r], or by rows for AMX.
inline void pack_q(const TileJob& job, int64_t first, int64_t rows, float* staging, float* out) {
  const ForwardProblem& p = *job.problem;
  const int64_t units = job.layout->units_qk;
  for (int64_t r = 0; r < rows; ++r) {
    float* const row = kMatrix ? out + r * units : staging;
    load_units(
        p, p.dtype, job.arguments->q,
        p.q.at(job.batch, job.head_of(first + r), job.sequence.q_begin + job.query_of(first + r)),
        1.0f, row, units);
    if constexpr (!kMatrix) {
      for (int64_t u = 0; u < units; ++u) out[u * rows + r] = row[u];
    }
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
