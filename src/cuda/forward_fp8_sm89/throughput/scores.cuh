// A warp's scores of one KV tile, P, and both products. A lane holds rows l / 4 (slot 0) and l /
// 4 + 8 (slot 1) of its warp's 16, columns 8 n + 2 (l % 4) and + 1 of product n
// (tile/fragment.hpp).
#pragma once

#include <cstdint>

#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/mask.cuh"
#include "cuda/attention/softcap.cuh"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

template <class S>
using Scores = float[S::kKeyProducts][4];

// P as the left operand of products of 32 keys each, in the order of tile::fp8_p_source.
template <class S>
using Probabilities = uint32_t[S::kKeySteps][4];

// Product 2 i has the even dimensions of 16 i .., product 2 i + 1 the odd ones.
template <class S>
using Outputs = float[S::kOutProducts][4];

// A row's largest score in a tile becomes P = 2^kTop: exact in e4m3, which
// ends at 448. Down to 2^-14 of it, P has all bits; below 2^-18 of it, P is 0.
inline constexpr float kTop = 8;

// The reference of a row that has seen no key. Rows with keys that end
// with it, or above -kNoReference, are recomputed (exact_rows.cuh).
inline constexpr float kNoReference = -attention::kLargestReference;

// S = Q K^T. `q_lane` and `k_lane`: start of this lane's ldmatrix rows.
template <class S>
__device__ __forceinline__ void multiply_qk(Scores<S>& s, uint32_t q_lane, uint32_t k_lane) {
  using QTile = typename S::QTile;
  using KvTile = typename S::KvTile;
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
  for (int step = 0; step < S::kQkSteps; ++step) {
    uint32_t q[4];
    ptx::ldmatrix_x4(q, QTile::template advance<2>(q_lane, step));
#pragma unroll
    for (int n = 0; n < S::kKeyProducts; n += 2) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k,
                       KvTile::template advance<2>(k_lane, step) + 8 * n * KvTile::kPanelRowBytes);
      ptx::mma_m16n8k32_e4m3(s[n], q, k[0], k[1]);
      ptx::mma_m16n8k32_e4m3(s[n + 1], q, k[2], k[3]);
    }
  }
}

// Turns products into capped scores in units of log2.
template <class S>
__device__ __forceinline__ void cap_scores(Scores<S>& s, const attention::SoftcapParams& cap) {
#pragma unroll
  for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[n][e] = attention::capped_log2(s[n][e], cap);
  }
}

// Masks the scores outside the band and the length in a tile whose
// first key is `key`, by selection. `query`: the lane's row of slot 0.
template <class S>
__device__ __forceinline__ void mask_scores(Scores<S>& s, const attention::BandLimits& limits,
                                            int query, int key, int lane) {
  const bool open_left = limits.open_left();
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const attention::ColumnRange seen =
        attention::visible_columns(limits, query + 8 * slot, key + 2 * (lane % 4));
    attention::mask_row<attention::Ends::end>(s, slot, seen);
    if (open_left) continue;
    attention::mask_row<attention::Ends::begin>(s, slot, seen);
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

// The factors by which the sums so far, and a tile's sums, are multiplied when added.
struct Meeting {
  float before[2], now[2];
};

// O = O * before + (P V) * now. The Tensor Cores add up one tile, starting from zero.
//
// ldmatrix.trans moves pairs of bytes: a lane gets two neighbouring dimensions of two
// keys, and selects bytes from two such registers, once for the even dimensions and once
// for the odd ones. Their keys are in the order of tile::fp8_key_of_slot, like P's.
template <class S>
__device__ __forceinline__ void add_outputs(Outputs<S>& o, const Probabilities<S>& p,
                                            const Meeting& factor, uint32_t v_lane) {
  using KvTile = typename S::KvTile;
#pragma unroll
  for (int d16 = 0; d16 < S::kOutProducts / 2; ++d16) {
    float product[2][4] = {};
#pragma unroll
    for (int step = 0; step < S::kKeySteps; ++step) {
      uint32_t v[4];
      ptx::ldmatrix_x4_trans(
          v, KvTile::template advance<1>(v_lane, d16) + 32 * step * KvTile::kPanelRowBytes);
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        const uint32_t bytes = parity == 0 ? 0x6420 : 0x7531;
        ptx::mma_m16n8k32_e4m3(product[parity], p[step], __byte_perm(v[0], v[1], bytes),
                               __byte_perm(v[2], v[3], bytes));
      }
    }
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& sum = o[2 * d16 + parity][e];
        sum = fmaf(sum, factor.before[e / 2], product[parity][e] * factor.now[e / 2]);
      }
    }
    __syncwarp();  // keeps the next fragments from being loaded early
  }
}

// Adds the sums of the rounded P, as for a V that is a column of ones.
template <class S>
__device__ __forceinline__ void add_rounded(float (&rounded)[2], const Probabilities<S>& p,
                                            const Meeting& factor) {
  constexpr uint32_t kFourOnes = 0x38383838U;  // of e4m3
  float product[4] = {};
#pragma unroll
  for (int step = 0; step < S::kKeySteps; ++step) {
    ptx::mma_m16n8k32_e4m3(product, p[step], kFourOnes, kFourOnes);
  }
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    rounded[slot] = fmaf(rounded[slot], factor.before[slot], product[2 * slot] * factor.now[slot]);
  }
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
