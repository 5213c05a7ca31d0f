// Packs rows of fp32 into the layouts that the backward pass' products read.
//
//   tiles    [row tile][unit][row]          left factors: Q and dO (AMX: [row][unit])
//   panels   [panel][unit][kPanel rows]     transposed: K^T and V^T
//   rows     [panel][unit of rows][kPanel]  like V in the forward pass: K, Q and dO
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/simd/backward_job.hpp"
#include "cpu/simd/pack-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

// A row of fp32 as units, padded with zeros. Pairs come from bf16: the upper half holds everything.
inline void to_units(const float* row, int64_t width, int64_t units, float* out) {
  const int64_t used = std::min(width, units * kUnit);
  if constexpr (kPairs) {
    const auto* const bits = reinterpret_cast<const uint32_t*>(row);
    auto* const to = reinterpret_cast<uint16_t*>(out);
    for (int64_t c = 0; c < used; ++c) to[c] = static_cast<uint16_t>(bits[c] >> 16);
    std::fill(to + used, to + units * kUnit, uint16_t{0});
  } else {
    std::copy_n(row, used, out);
    std::fill(out + used, out + units, 0.0f);
  }
}

inline void pack_tile(const float* rows, int64_t count, int64_t width, int64_t units,
                      float* staging, float* out) {
  for (int64_t r = 0; r < count; ++r) {
    float* const row = kMatrix ? out + r * units : staging;
    to_units(rows + r * width, width, units, row);
    if constexpr (!kMatrix) {
      for (int64_t u = 0; u < units; ++u) out[u * count + r] = row[u];
    }
  }
}

// `rows` must have zeros up to full panels. Staging: kLanes rows of units.
inline void pack_panels(const float* rows, int64_t count, int64_t width, int64_t units,
                        float* staging, float* out) {
  for (int64_t j = 0; j < round_up(count, kPanel); j += kLanes) {
    for (int64_t r = 0; r < kLanes; ++r) {
      to_units(rows + (j + r) * width, width, units, staging + r * units);
    }
    transpose_rows(staging, units, units, out + j / kPanel * units * kPanel + j % kPanel);
  }
}

// `rows` must have zeros up to full panels; `out` has room for `block` rows.
inline void pack_rows(const float* rows, int64_t count, int64_t width, int64_t block, float* out) {
  for (int64_t j = 0; j < round_up(count, kPanel); j += kUnit) {
    store_v_units(rows + j * width, width, j / kUnit, block / kUnit, out);
  }
}

// out[c * out_stride + r] = in[r * in_stride + c]; rows must be a multiple of kLanes, columns a
// multiple of 4.
inline void transpose_block(const float* in, int64_t in_stride, int64_t rows, int64_t columns,
                            float* out, int64_t out_stride) {
  HWY_ALIGN float turned[4 * kPanel];
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += 4) {
      transpose_rows(in + r * in_stride + c, in_stride, 4, turned);
      for (int64_t i = 0; i < 4; ++i) {
        hn::Store(hn::Load(kF, turned + i * kPanel), kF, out + (c + i) * out_stride + r);
      }
    }
  }
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
