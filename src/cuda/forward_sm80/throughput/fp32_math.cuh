// Products of fp32 inputs, as three tf32 Tensor Core products.
//
//   x = high + low, both tf32:  x y  ~  low(x) high(y) + high(x) low(y) + high(x) high(y)
//
// The omitted term is below 2^-22 of x y, and has either sign. The Tensor Core
// truncates when it adds, which pulls long sums towards 0. Therefore each sum of a few
// products starts from zero and is added to the rest by an ordinary, rounding addition.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/warp_math.cuh"
#include "cuda/ptx/tf32.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// The left operand of a product, split into high and low parts.
struct SplitOperand {
  float high[4], low[4];

  __device__ __forceinline__ void set(int i, float x) {
    high[i] = ptx::round_to_tf32(x);
    low[i] = x - high[i];
  }
};

// d += A * B, with column b0, b1 of B.
__device__ __forceinline__ void multiply_split(float (&d)[4], const SplitOperand& a, float b0,
                                               float b1) {
  const float high0 = ptx::round_to_tf32(b0), high1 = ptx::round_to_tf32(b1);
  ptx::mma_m16n8k8_tf32(d, a.low, high0, high1);
  ptx::mma_m16n8k8_tf32(d, a.high, b0 - high0, b1 - high1);
  ptx::mma_m16n8k8_tf32(d, a.high, high0, high1);
}

// The Tensor Core adds up a panel's 32 columns.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void multiply_qk_fp32(Scores<kConfig.row_groups, kProducts>& s,
                                                 QueryFragments<kConfig> q, uint32_t k_address) {
  using S = Shape<kConfig>;
  using Tile = typename S::KTile;
  static_assert(S::kGroups == 1);
  constexpr int kPanelSteps = 4;
#pragma unroll
  for (int n = 0; n < kProducts; ++n) s[0][n][0] = s[0][n][1] = s[0][n][2] = s[0][n][3] = 0;
#pragma unroll 1
  for (int panel = 0; panel < Tile::kPanels; ++panel) {
    float part[kProducts][4] = {};
#pragma unroll
    for (int step = 0; step < kPanelSteps; ++step) {
      q.read(step);
      SplitOperand a;
#pragma unroll
      for (int i = 0; i < 4; ++i) a.set(i, __uint_as_float(q.held[0][0][i]));
      const uint32_t column = Tile::template advance<2>(k_address, step);
#pragma unroll
      for (int block = 0; block < kProducts / 2; ++block) {
        uint32_t k[4];
        ptx::ldmatrix_x4(k, column + block * 16 * Tile::kPanelRowBytes);
        multiply_split(part[2 * block], a, __uint_as_float(k[0]), __uint_as_float(k[1]));
        multiply_split(part[2 * block + 1], a, __uint_as_float(k[2]), __uint_as_float(k[3]));
      }
    }
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[0][n][e] += part[n][e];
    }
    q.address += S::QTile::kPanelBytes;
    k_address += Tile::kPanelBytes;
  }
}

// Returns the address of a lane's values in a tile of V: ldmatrix reads 16-bit values; of fp32,
// a lane reads column lane / 4 of keys 2 (lane % 4) and + 1 itself, without bank conflicts.
template <class Element, class Tile>
__device__ __forceinline__ uint32_t value_place(int lane) {
  if constexpr (!kIsFp32<Element>) {
    return rows_first<Tile>(lane);
  } else {
    return Tile::offset(2 * (lane % 4), lane / 4);
  }
}

// The keys of a product are in the order 0, 2, 4, 6, 1, 3, 5, 7, so
// that the accumulators of S are its left operand without a shuffle.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void multiply_pv_fp32(WarpState<kConfig>& w,
                                                 const Scores<kConfig.row_groups, kProducts>& s,
                                                 uint32_t v_address) {
  using Tile = typename Shape<kConfig>::VTile;
  SplitOperand p[kProducts];
#pragma unroll
  for (int n = 0; n < kProducts; ++n) {
    p[n].set(0, s[0][n][0]);
    p[n].set(1, s[0][n][2]);
    p[n].set(2, s[0][n][1]);
    p[n].set(3, s[0][n][3]);
  }
#pragma unroll
  for (int column = 0; column < kConfig.head_dim_v / 8; ++column) {
    const uint32_t even = Tile::template advance<2>(v_address, column);
    const uint32_t odd = (even ^ tile::kChunkBytes) + Tile::kPanelRowBytes;
    float part[4] = {};
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
      constexpr int kProductBytes = 8 * Tile::kPanelRowBytes;
      multiply_split(part, p[n], ptx::load_shared_f32(even + n * kProductBytes),
                     ptx::load_shared_f32(odd + n * kProductBytes));
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) w.o[0][column][e] += part[e];
  }
}

// Computes scores by ordinary multiplication, for inputs whose parts are not finite.
template <Config kConfig, int kProducts>
__device__ __forceinline__ void multiply_qk_exactly(Scores<kConfig.row_groups, kProducts>& s,
                                                    const unsigned char* q_tile,
                                                    const unsigned char* k_tile, int first_key,
                                                    int thread) {
  using S = Shape<kConfig>;
  const int row = thread / 32 * S::kWarpRows + thread % 32 / 4;
  const int key = first_key + 2 * (thread % 4);
  const auto at = [](const unsigned char* tile, uint32_t offset) {
    return *reinterpret_cast<const float*>(tile + offset);
  };
#pragma unroll
  for (int n = 0; n < kProducts; ++n) s[0][n][0] = s[0][n][1] = s[0][n][2] = s[0][n][3] = 0;
#pragma unroll 1
  for (int d = 0; d < kConfig.head_dim_qk; ++d) {
    const float q[2] = {at(q_tile, S::QTile::offset(row, d)),
                        at(q_tile, S::QTile::offset(row + 8, d))};
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float k = at(k_tile, S::KTile::offset(key + 8 * n + e % 2, d));
        s[0][n][e] = fmaf(q[e / 2], k, s[0][n][e]);
      }
    }
  }
}

}  // namespace flashcore::cuda::forward_sm80::throughput
