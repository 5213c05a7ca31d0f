// A warp's scores of one tile of fp8 keys, and P. A lane holds rows l / 4 (slot 0) and l / 4 + 8 (slot 1) of its
// warp's 16, columns 8 n + 2 (l % 4) and + 1 of product n (tile/fragment.hpp).
#pragma once

#include <cstdint>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::attention::fp8 {

template <class S>
using Scores = float[S::kKeyProducts][4];

// P as the left operand of products of 32 keys each, in the order of
// tile::fp8_p_source: V^T's keys are stored in the order of tile::fp8_key_of_slot.
template <class S>
using Probabilities = uint32_t[S::kKeySteps][4];

// The reference of a row that has seen no key. Rows that end with
// it, or above -kNoReference, are recomputed (exact_rows.cuh).
inline constexpr float kNoReference = -kLargestReference;

// Turns products into capped scores, in units of log2. Far below the cap, a polynomial
// suffices; closer scores cost two special functions per element, and give the same numbers.
template <class S>
__device__ __forceinline__ void cap_scores(Scores<S>& s, const SoftcapParams& cap) {
  float largest = 0;
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) largest = fmaxf(largest, fabsf(s[n][e]));
  }
  if (__all_sync(0xffffffffU, largest * fabsf(cap.rate) <= kCapNear) != 0) {
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float x = s[n][e] * cap.rate;
        s[n][e] = s[n][e] * cap.scale_log2 * tanh_ratio(x * x);
      }
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = capped_log2(s[n][e], cap);
  }
}

// Masks the scores outside the band and the length in a block whose
// first key is `key`, by selection. `query`: the lane's row of slot 0.
template <class S>
__device__ __forceinline__ void mask_scores(Scores<S>& s, const BandLimits& limits, int query,
                                            int key, int lane) {
  const bool open_left = limits.open_left();
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const ColumnRange seen = visible_columns(limits, query + 8 * slot, key + 2 * (lane % 4));
    mask_row<Ends::end>(s, slot, seen);
    if (open_left) continue;
    mask_row<Ends::begin>(s, slot, seen);
  }
}

// Returns register r of step i of P.
template <class S>
__device__ __forceinline__ uint32_t packed(const Scores<S>& s, int i, int r) {
  const int n = 4 * i + 2 * (r / 2), slot = r % 2;
  return ptx::pack_e4m3x4(s[n][2 * slot], s[n][2 * slot + 1], s[n + 1][2 * slot],
                          s[n + 1][2 * slot + 1]);
}

template <class S>
__device__ __forceinline__ void pack(Probabilities<S>& p, const Scores<S>& s) {
#pragma unroll
  for (int i = 0; i < 4 * S::kKeySteps; ++i) p[i / 4][i % 4] = packed<S>(s, i / 4, i % 4);
}

// Returns the rounding errors of a register's elements.
template <class S>
__device__ __forceinline__ uint32_t rest_of(const Scores<S>& s, uint32_t rounded, int i, int r) {
  const int n = 4 * i + 2 * (r / 2), slot = r % 2;
  float rest[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const uint32_t pair = ptx::e4m3x2_to_f16x2(rounded >> (16 * (e / 2)) & 0xffffU);
    rest[e] = s[n + e / 2][2 * slot + e % 2] -
              ptx::f16_to_float(static_cast<uint16_t>(pair >> (16 * (e % 2))));
  }
  return ptx::pack_e4m3x4(rest[0], rest[1], rest[2], rest[3]);
}

template <class S>
__device__ __forceinline__ void pack_rest(Probabilities<S>& rest, const Scores<S>& s,
                                          const Probabilities<S>& p) {
#pragma unroll
  for (int i = 0; i < 4 * S::kKeySteps; ++i) {
    rest[i / 4][i % 4] = rest_of<S>(s, p[i / 4][i % 4], i / 4, i % 4);
  }
}

}  // namespace flashcore::cuda::attention::fp8
