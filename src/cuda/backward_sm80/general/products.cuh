// The products of a tile, by one warp: X Y^T of its 16 rows,
// and A Y, where A are the accumulators of such a product.
//
// fp32 products use tf32 Tensor Cores, in three parts:
//
//   x = high + low, both tf32:  x y  ~  low(x) high(y) + high(x) low(y) + high(x) high(y)
//
// The omitted term is below 2^-22 of x y. The Tensor Core truncates when it adds, so each sum of
// a few products starts from zero and is added to the rest by an ordinary, rounding addition.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/element.cuh"
#include "cuda/backward_sm80/general/shape.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/tf32.cuh"

namespace flashcore::cuda::backward_sm80::general {

// Byte offset of the row that a lane passes to ldmatrix, in a 16 x 16
// block of 16-bit elements, or 16 x 8 of fp32, at a tile's start: rows
// first for left operands and the rows of A Y, columns first for Y^T.
template <class Tile>
__device__ __forceinline__ uint32_t rows_first(int lane) {
  return Tile::chunk_offset(lane & 15, lane >> 4);
}
template <class Tile>
__device__ __forceinline__ uint32_t columns_first(int lane) {
  return Tile::chunk_offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

// A left operand, split into high and low parts, and d += A B for column b0, b1 of B.
struct SplitOperand {
  float high[4], low[4];

  __device__ __forceinline__ void set(int i, float x) {
    high[i] = ptx::round_to_tf32(x);
    low[i] = x - high[i];
  }
  __device__ __forceinline__ void multiply(float (&d)[4], float b0, float b1) const {
    const float high0 = ptx::round_to_tf32(b0), high1 = ptx::round_to_tf32(b1);
    ptx::mma_m16n8k8_tf32(d, low, high0, high1);
    ptx::mma_m16n8k8_tf32(d, high, b0 - high0, b1 - high1);
    ptx::mma_m16n8k8_tf32(d, high, high0, high1);
  }
};

template <int kProducts>
__device__ __forceinline__ void clear(float (&sums)[kProducts][4]) {
#pragma unroll
  for (int n = 0; n < kProducts; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
}

// s = X Y^T. x: shared address of the warp's 16 rows; y: shared address of the tile.
template <Config kConfig, class Element>
__device__ __forceinline__ void multiply_xy(typename Shape<kConfig>::Scores& s, uint32_t x,
                                            uint32_t y, int lane) {
  using S = Shape<kConfig>;
  using XTile = typename S::XTile;
  using YTile = typename S::YTile;
  // Steps of one pair of chunks, 32 bytes per row; a panel has at most four.
  constexpr int kSteps = YTile::kRowChunks / 2, kPanelSteps = YTile::kPanelChunks / 2;
  // With more unrolling, fragments that are read early take the registers of wide sums.
  constexpr int kUnrolled = kConfig.head_dim <= 64 ? 4 : kIsFp32<Element> ? 1 : 2;
  const uint32_t x_row = x + rows_first<XTile>(lane), y_row = y + columns_first<YTile>(lane);
  clear(s);
  if constexpr (!kIsFp32<Element>) {
#pragma unroll kUnrolled
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[4];
      ptx::ldmatrix_x4(a, XTile::template advance<2>(x_row, step));
      const uint32_t column = YTile::template advance<2>(y_row, step);
#pragma unroll
      for (int block = 0; block < S::kProducts / 2; ++block) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, column + block * 16 * YTile::kPanelRowBytes);
        Element::multiply(s[2 * block], a, b[0], b[1]);
        Element::multiply(s[2 * block + 1], a, b[2], b[3]);
      }
    }
  } else {
#pragma unroll 1
    for (int panel = 0; panel < YTile::kPanels; ++panel) {
      typename S::Scores part;
      clear(part);
#pragma unroll kUnrolled
      for (int step = 0; step < kPanelSteps; ++step) {
        uint32_t bits[4];
        ptx::ldmatrix_x4(bits,
                         XTile::template advance<2>(x_row, step) + panel * XTile::kPanelBytes);
        SplitOperand a;
#pragma unroll
        for (int i = 0; i < 4; ++i) a.set(i, __uint_as_float(bits[i]));
        const uint32_t column =
            YTile::template advance<2>(y_row, step) + panel * YTile::kPanelBytes;
#pragma unroll
        for (int block = 0; block < S::kProducts / 2; ++block) {
          uint32_t b[4];
          ptx::ldmatrix_x4(b, column + block * 16 * YTile::kPanelRowBytes);
          a.multiply(part[2 * block], __uint_as_float(b[0]), __uint_as_float(b[1]));
          a.multiply(part[2 * block + 1], __uint_as_float(b[2]), __uint_as_float(b[3]));
        }
      }
#pragma unroll
      for (int n = 0; n < S::kProducts; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] += part[n][e];
      }
    }
  }
}

// s = X Y^T by ordinary multiplication, for fp32 whose parts are not finite.
template <Config kConfig>
__device__ __forceinline__ void multiply_xy_exactly(typename Shape<kConfig>::Scores& s,
                                                    const unsigned char* x_tile,
                                                    const unsigned char* y_tile, int warp,
                                                    int lane) {
  using S = Shape<kConfig>;
  const auto at = [](const unsigned char* tile, uint32_t offset) {
    return *reinterpret_cast<const float*>(tile + offset);
  };
  const int row = 16 * warp + lane / 4, column = 2 * (lane % 4);
  clear(s);
#pragma unroll 1
  for (int d = 0; d < kConfig.head_dim; ++d) {
    const float x[2] = {at(x_tile, S::XTile::offset(row, d)),
                        at(x_tile, S::XTile::offset(row + 8, d))};
#pragma unroll
    for (int n = 0; n < S::kProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float y = at(y_tile, S::YTile::offset(column + 8 * n + e % 2, d));
        s[n][e] = fmaf(x[e / 2], y, s[n][e]);
      }
    }
  }
}

// sums += A Y. y: shared address of the tile.
template <Config kConfig, class Element>
__device__ __forceinline__ void multiply_ay(typename Shape<kConfig>::Sums& sums,
                                            const typename Shape<kConfig>::Scores& a, uint32_t y,
                                            int lane) {
  using S = Shape<kConfig>;
  using YTile = typename S::YTile;
  if constexpr (!kIsFp32<Element>) {
    const uint32_t y_row = y + rows_first<YTile>(lane);
#pragma unroll
    for (int block = 0; block < S::kProducts / 2; ++block) {
      uint32_t left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&from)[4] = a[2 * block + i / 2];
        left[i] = Element::pack(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      }
#pragma unroll
      for (int step = 0; step < S::kColumns / 2; ++step) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(
            b, YTile::template advance<2>(y_row, step) + block * 16 * YTile::kPanelRowBytes);
        Element::multiply(sums[2 * step], left, b[0], b[1]);
        Element::multiply(sums[2 * step + 1], left, b[2], b[3]);
      }
    }
  } else {
    // The rows of a product are in the order 0, 2, 4, 6, 1, 3, 5, 7, so that accumulators are
    // directly a left operand. A lane reads column lane / 4 of rows 2 (lane % 4) and + 1.
    SplitOperand left[S::kProducts];
#pragma unroll
    for (int n = 0; n < S::kProducts; ++n) {
      left[n].set(0, a[n][0]);
      left[n].set(1, a[n][2]);
      left[n].set(2, a[n][1]);
      left[n].set(3, a[n][3]);
    }
    const uint32_t place = y + YTile::offset(2 * (lane % 4), lane / 4);
#pragma unroll
    for (int column = 0; column < S::kColumns; ++column) {
      const uint32_t even = YTile::template advance<2>(place, column);
      const uint32_t odd = (even ^ tile::kChunkBytes) + YTile::kPanelRowBytes;
      float part[4] = {};
#pragma unroll
      for (int n = 0; n < S::kProducts; ++n) {
        constexpr int kProductBytes = 8 * YTile::kPanelRowBytes;
        left[n].multiply(part, ptx::load_shared_f32(even + n * kProductBytes),
                         ptx::load_shared_f32(odd + n * kProductBytes));
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[column][e] += part[e];
    }
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
