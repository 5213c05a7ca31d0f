// The one inner loop: a tile of rows times a panel, kept in registers.
//
//   acc[r][v] = sum over k of a[r * row_step + k * k_step] * b[k * kPanel + v * kLanes ...]
//
// Scores: a = Q (row_step 1, k_step rows). Output: a = P (row_step kScoreStride, k_step 1).
#pragma once

#include "cpu/simd/pack-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

// Rows of the largest tile: with two vectors of B and a broadcast it fills the registers.
inline constexpr int kRowTile = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM_A64 ? 12 : 6;

// The largest tile of at most `rows` rows; 12, 8 (6), 4, 2, 1.
constexpr int64_t row_tile(int64_t rows) {
  if (rows >= kRowTile) return kRowTile;
  return rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

HWY_INLINE VecF multiply_add(VecF a, VecF b, VecF sum) {
#if defined(FLASHCORE_SIMD_BF16)
  return VecF{_mm512_dpbf16_ps(sum.raw, (__m512bh)_mm512_castps_si512(a.raw),
                               (__m512bh)_mm512_castps_si512(b.raw))};
#else
  return hn::MulAdd(a, b, sum);
#endif
}

template <int kRows, int kVecs, int kRowStep, int kStep>
HWY_INLINE void accumulate(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                           VecF (&acc)[kRows][kVecs]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(kF);
  }
  for (int64_t k = 0; k < depth; ++k) {
    VecF column[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) column[v] = hn::Load(kF, b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const VecF factor = hn::Set(kF, a[r * kRowStep]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        acc[r][v] = multiply_add(factor, column[v], acc[r][v]);
      }
    }
    a += kStep;
    b += kPanel;
  }
}

// s[r][c] for columns [first, last), multiples of kLanes; `first` is a multiple of kPanel.
template <int kRows, int kVecs>
HWY_NOINLINE void score_panel(const float* q, const float* k, int64_t units, float* s) {
  VecF acc[kRows][kVecs];
  accumulate<kRows, kVecs, 1, kRows>(q, k, units, acc);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) hn::Store(acc[r][v], kF, s + r * kScoreStride + v * kLanes);
  }
}

template <int kRows>
void score_tile(const float* q, const float* k, int64_t units, int64_t first, int64_t last,
                float* s) {
  for (int64_t c = first; c < last; c += kPanel) {
    const float* const panel = k + c * units;
    if (last - c > kLanes) {
      score_panel<kRows, 2>(q, panel, units, s + c);
    } else {
      score_panel<kRows, 1>(q, panel, units, s + c);
    }
  }
}

// o[r] = o[r] * alpha[r] + P V over units of keys.
template <int kRows, int kVecs>
HWY_NOINLINE void value_panel(const float* p, const float* v, int64_t units, const float* alpha,
                              float* o, int64_t width) {
  VecF acc[kRows][kVecs];
  accumulate<kRows, kVecs, kScoreStride, 1>(p, v, units, acc);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const VecF factor = hn::Set(kF, alpha[r]);
#pragma GCC unroll 2
    for (int c = 0; c < kVecs; ++c) {
      float* const to = o + r * width + c * kLanes;
      hn::Store(hn::MulAdd(hn::Load(kF, to), factor, acc[r][c]), kF, to);
    }
  }
}

// Keys [first, last) of the block; both are multiples of kLanes.
template <int kRows>
void value_tile(const float* p, const float* v, int64_t block_units, int64_t first, int64_t last,
                const float* alpha, float* o, int64_t width) {
  const int64_t begin = first / kUnit;
  const int64_t units = (last - first) / kUnit;
  for (int64_t c = 0; c < width; c += kPanel) {
    const float* const panel = v + c * block_units + begin * kPanel;
    if (width - c > kLanes) {
      value_panel<kRows, 2>(p + begin, panel, units, alpha, o + c, width);
    } else {
      value_panel<kRows, 1>(p + begin, panel, units, alpha, o + c, width);
    }
  }
}

inline void begin_products() {}
inline void end_products() {}

inline void scores_of(int64_t rows, const float* q, const float* k, int64_t units, int64_t first,
                      int64_t last, float* s) {
  switch (rows) {
    case 1:
      return score_tile<1>(q, k, units, first, last, s);
    case 2:
      return score_tile<2>(q, k, units, first, last, s);
    case 4:
      return score_tile<4>(q, k, units, first, last, s);
    case 8:
      return score_tile<8>(q, k, units, first, last, s);
    default:
      return score_tile<kRowTile>(q, k, units, first, last, s);
  }
}

inline void values_of(int64_t rows, const float* p, const float* v, int64_t block_units,
                      int64_t first, int64_t last, const float* alpha, float* o, int64_t width) {
  switch (rows) {
    case 1:
      return value_tile<1>(p, v, block_units, first, last, alpha, o, width);
    case 2:
      return value_tile<2>(p, v, block_units, first, last, alpha, o, width);
    case 4:
      return value_tile<4>(p, v, block_units, first, last, alpha, o, width);
    case 8:
      return value_tile<8>(p, v, block_units, first, last, alpha, o, width);
    default:
      return value_tile<kRowTile>(p, v, block_units, first, last, alpha, o, width);
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
