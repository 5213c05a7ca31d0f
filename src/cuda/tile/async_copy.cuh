// Copies rows of a global matrix into a swizzled shared-memory tile, by 16-byte asynchronous copies.
#pragma once

#include <cstdint>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::tile {

// Issues thread `thread`'s copies, kThreads threads together, of the tile that starts
// at row first_row of `matrix`. Rows from end_row (more than first_row) on become zero.
//
// A thread keeps its chunk column and advances by a multiple of 8 rows, so that its swizzle
// never changes and shared-memory steps are constants. No part of the address should be kept
// after the call: a kernel whose accumulators fill the registers cannot afford running pointers.
template <class Tile, int kThreads>
__device__ __forceinline__ void copy_rows_async(unsigned char* tile, const void* matrix,
                                                int64_t row_stride_bytes, int first_row,
                                                int end_row, int thread) {
  constexpr int kRowsPerPass = kThreads / Tile::kRowChunks;
  constexpr int kPasses = Tile::kRows / kRowsPerPass;
  static_assert(kThreads % Tile::kRowChunks == 0 && kRowsPerPass % 8 == 0);
  static_assert(Tile::kRows % kRowsPerPass == 0);
  const int chunk = thread % Tile::kRowChunks, row = thread / Tile::kRowChunks;
  unsigned char* shared = tile + Tile::chunk_offset(row, chunk);
  const unsigned char* global = static_cast<const unsigned char*>(matrix) + chunk * kChunkBytes +
                                (first_row + row) * row_stride_bytes;
  if (first_row + Tile::kRows <= end_row) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      ptx::cp_async_16(shared + i * kRowsPerPass * Tile::kPanelRowBytes, global);
      global += kRowsPerPass * row_stride_bytes;
    }
  } else {
    const unsigned char* readable = global - row * row_stride_bytes;  // in the tile's first row
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const bool valid = first_row + row + i * kRowsPerPass < end_row;
      ptx::cp_async_16(shared + i * kRowsPerPass * Tile::kPanelRowBytes, valid ? global : readable,
                       valid);
      global += kRowsPerPass * row_stride_bytes;
    }
  }
}

}  // namespace flashcore::cuda::tile
