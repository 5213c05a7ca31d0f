// Products of a tile on matrix registers (AMX): the same interface as micro_kernel-inl.hpp.
//
// A tile register holds 16 rows of 64 bytes. TDPBF16PS: C(16x16, f32) += A(16x32, bf16, row-major)
// * B(32x16, bf16, as 16 rows of 16 pairs), which is how K^T and V are packed for bf16.
//
//   registers   0 1   sums of 32 rows x 32 columns     4  rows 0-15 of A     6  columns 0-15 of B
//               2 3                                    5  rows 16-31         7  columns 16-31
#pragma once

#include <immintrin.h>

#include "cpu/simd/pack-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

inline constexpr int64_t kRowTile = 32;
inline constexpr int64_t kTileRows = 16;
static_assert(kPanel == 32 && kPairs);

constexpr int64_t row_tile(int64_t rows) { return rows < kRowTile ? rows : kRowTile; }

// Configures all eight registers as 16 rows of 64 bytes.
inline void begin_products() {
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  const Config config;
  _tile_loadconfig(&config);
}

inline void end_products() { _tile_release(); }

// Multiplies 16 or 32 rows of `a` by one or two halves of a panel, summed over `units` (a multiple
// of 16), and stores to `out`. Strides in floats.
template <bool kBothRows, bool kBothColumns>
HWY_NOINLINE void multiply(const float* a, int64_t a_stride, const float* b, int64_t units,
                           float* out, int64_t out_stride) {
  const int64_t a_bytes = a_stride * 4;
  const int64_t b_bytes = kPanel * 4;
  _tile_zero(0);
  if constexpr (kBothColumns) _tile_zero(1);
  if constexpr (kBothRows) _tile_zero(2);
  if constexpr (kBothRows && kBothColumns) _tile_zero(3);
  for (int64_t u = 0; u < units; u += 16) {
    _tile_loadd(4, a + u, a_bytes);
    _tile_loadd(6, b + u * kPanel, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kBothColumns) {
      _tile_loadd(7, b + u * kPanel + 16, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kBothRows) {
      _tile_loadd(5, a + 16 * a_stride + u, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kBothColumns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  const int64_t out_bytes = out_stride * 4;
  _tile_stored(0, out, out_bytes);
  if constexpr (kBothColumns) _tile_stored(1, out + 16, out_bytes);
  if constexpr (kBothRows) _tile_stored(2, out + 16 * out_stride, out_bytes);
  if constexpr (kBothRows && kBothColumns) _tile_stored(3, out + 16 * out_stride + 16, out_bytes);
}

inline void multiply_any(int64_t rows, int64_t columns, const float* a, int64_t a_stride,
                         const float* b, int64_t units, float* out, int64_t out_stride) {
  if (rows > kTileRows) {
    if (columns > 16) return multiply<true, true>(a, a_stride, b, units, out, out_stride);
    return multiply<true, false>(a, a_stride, b, units, out, out_stride);
  }
  if (columns > 16) return multiply<false, true>(a, a_stride, b, units, out, out_stride);
  return multiply<false, false>(a, a_stride, b, units, out, out_stride);
}

// s[r][c] for columns [first, last), multiples of kPanel.
inline void scores_of(int64_t rows, const float* q, const float* k, int64_t units, int64_t first,
                      int64_t last, float* s) {
  for (int64_t c = first; c < last; c += kPanel) {
    multiply_any(rows, kPanel, q, units, k + c * units, units, s + c, kScoreStride);
  }
}

// o[r] = o[r] * alpha[r] + P V over keys [first, last) of the block, multiples of kPanel.
inline void values_of(int64_t rows, const float* p, const float* v, int64_t block_units,
                      int64_t first, int64_t last, const float* alpha, float* o, int64_t width) {
  HWY_ALIGN float product[kRowTile * kPanel];
  const int64_t begin = first / kUnit;
  for (int64_t c = 0; c < width; c += kPanel) {
    const int64_t columns = width - c < kPanel ? width - c : kPanel;
    multiply_any(rows, columns, p + begin, kScoreStride, v + c * block_units + begin * kPanel,
                 (last - first) / kUnit, product, kPanel);
    for (int64_t r = 0; r < rows; ++r) {
      const VecF factor = hn::Set(kF, alpha[r]);
      for (int64_t i = 0; i < columns; i += kLanes) {
        float* const to = o + r * width + c + i;
        const VecF sum = hn::Load(kF, product + r * kPanel + i);
        hn::Store(hn::MulAdd(hn::Load(kF, to), factor, sum), kF, to);
      }
    }
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
