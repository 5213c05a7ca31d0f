// Both products of a warp and a KV tile (attention/fp8/scores.cuh has the lanes' places).
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/scores.cuh"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// Product 2 i has the even dimensions of 16 i .., product 2 i + 1 the odd ones.
template <class S>
using Outputs = float[S::kOutProducts][4];

// A row's largest score in a tile becomes P = 2^kTop: exact in e4m3, which
// ends at 448. Down to 2^-14 of it, P has all bits; below 2^-18 of it, P is 0.
inline constexpr float kTop = 8;

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
