// Shared tiles in the XOR-swizzled layout of tile/swizzle.hpp, for rungs
// 07 to 11: copied in by cp.async, read as WMMA operand fragments.
//
// wmma::load_matrix_sync takes one address and one stride, so it cannot read a
// swizzled tile. These loads fill the fragments' registers with ldmatrix
// instead, which takes an address per row, and rely on the (lane, register) maps
// of tile/wmma_fragment.hpp. load_matrix_sync compiles to the same instruction.
#pragma once

#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>
#include <cstring>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/swizzle.hpp"
#include "cuda/tile/wmma_fragment.hpp"

namespace flashcore::cuda::ladder {

inline constexpr int kWmma = tile::kWmmaTile;  // a WMMA tile is 16 x 16 x 16

using Accumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kWmma, kWmma, kWmma, float>;
using RowMajorA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, kWmma, kWmma, kWmma, __half,
                                         nvcuda::wmma::row_major>;
using RowMajorB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kWmma, kWmma, kWmma, __half,
                                         nvcuda::wmma::row_major>;
using ColumnMajorB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kWmma, kWmma, kWmma, __half,
                                            nvcuda::wmma::col_major>;

// Issues the copies of rows [first_row, first_row + kRows) of a [*,
// kHeadDim] matrix into a swizzled tile. Rows at or past `end_row`
// are zero-filled; their copies name row 0 and read nothing.
template <int kThreads, int kRows, int kHeadDim>
__device__ void copy_tile_async(__half* tile, const __half* matrix, int64_t row_stride,
                                int first_row, int end_row, int thread) {
  constexpr int kChunks = kHeadDim / 8, kRowsAtOnce = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kRowsAtOnce == 0);
  static_assert((kRowsAtOnce & (kRowsAtOnce - 1)) == 0, "swizzle_row_step needs a power of two");
  const int row0 = thread / kChunks, column = thread % kChunks * 8;
  const __half* source = matrix + (first_row + row0) * row_stride + column;
  const int offset = tile::swizzle_offset<2 * kHeadDim>(row0, column);
#pragma unroll 4
  for (int row = 0; row < kRows; row += kRowsAtOnce) {
    const bool exists = first_row + row0 + row < end_row;
    ptx::cp_async_16(tile + (offset ^ tile::swizzle_row_step(row)) + row * kHeadDim,
                     exists ? source : matrix, exists);
    source += kRowsAtOnce * row_stride;
  }
}

// Copies without bounds tests if all rows exist.
template <int kThreads, int kRows, int kHeadDim>
__device__ void copy_tile_fast_async(__half* tile, const __half* matrix, int64_t row_stride,
                                     int first_row, int end_row, int thread) {
  if (first_row + kRows > end_row) {
    copy_tile_async<kThreads, kRows, kHeadDim>(tile, matrix, row_stride, first_row, end_row,
                                               thread);
    return;
  }
  constexpr int kChunks = kHeadDim / 8, kRowsAtOnce = kThreads / kChunks;
  const int row0 = thread / kChunks, column = thread % kChunks * 8;
  const __half* source = matrix + (first_row + row0) * row_stride + column;
  const int offset = tile::swizzle_offset<2 * kHeadDim>(row0, column);
#pragma unroll 4
  for (int row = 0; row < kRows; row += kRowsAtOnce) {
    ptx::cp_async_16(tile + (offset ^ tile::swizzle_row_step(row)) + row * kHeadDim, source);
    source += kRowsAtOnce * row_stride;
  }
}

// Sets the four distinct 32-bit registers of an operand fragment, which holds each twice.
template <class Operand>
__device__ void set_operand(Operand& operand, const uint32_t (&registers)[4]) {
  static_assert(sizeof operand.x == 2 * sizeof registers);
  std::memcpy(&operand.x[0], registers, sizeof registers);
  std::memcpy(&operand.x[8], registers, sizeof registers);
}

// The address that a lane passes to ldmatrix for the fragment at (row, column) of a swizzled tile,
// where (r, c) is the lane's position in the fragment. Tiles start at a multiple of kRowBytes.
template <int kRowBytes>
__device__ uint32_t fragment_address(const __half* tile, int row, int column, int r, int c) {
  const uint32_t address = ptx::shared_address(tile + tile::swizzle_offset<kRowBytes>(r, c));
  return (address ^ static_cast<uint32_t>(2 * column)) + static_cast<uint32_t>(row * kRowBytes);
}

// A (row, k): the 16x16 elements at (row, column) of a swizzled tile.
template <int kRowBytes>
__device__ void load_swizzled(RowMajorA& a, const __half* tile, int row, int column, int lane) {
  uint32_t registers[4];
  ptx::ldmatrix_x4(registers,
                   fragment_address<kRowBytes>(tile, row, column, lane % 16, lane / 16 * 8));
  set_operand(a, registers);
}

// B (k, column) = the transpose of the 16x16 elements at (row, column) of a swizzled tile: K^T.
template <int kRowBytes>
__device__ void load_swizzled(ColumnMajorB& b, const __half* tile, int row, int column, int lane) {
  uint32_t registers[4];
  ptx::ldmatrix_x4(registers, fragment_address<kRowBytes>(
                                  tile, row, column, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8));
  set_operand(b, registers);
}

// B (k, column) = the 16x16 elements at (row, column) of a swizzled tile: V.
template <int kRowBytes>
__device__ void load_swizzled(RowMajorB& b, const __half* tile, int row, int column, int lane) {
  uint32_t registers[4];
  ptx::ldmatrix_x4_trans(registers,
                         fragment_address<kRowBytes>(tile, row, column, lane % 16, lane / 16 * 8));
  set_operand(b, registers);
}

}  // namespace flashcore::cuda::ladder
