// Copies of tiles by cp.async: whole tiles, without a test or a 64-bit product, and any others.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/latency/params.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"

namespace flashcore::cuda::forward_sm80::latency {

// Copies rows [kBegin, kEnd) of a tile with kThreads threads, eight per row and panel. `to` and
// `from`: the thread's piece of the tile's first rows; rows are `stride` pieces apart in memory.
template <class Tile, int kThreads, int kBegin, int kEnd>
__device__ __forceinline__ void copy_whole(uint32_t to, const uint4* from, int64_t stride) {
  constexpr int kPassRows = kThreads / 8;
  static_assert(kPassRows == 4 || kPassRows % 8 == 0);
  static_assert(kBegin % kPassRows == 0 && kEnd % kPassRows == 0);
#pragma unroll
  for (int row = kBegin; row < kEnd; row += kPassRows) {
    // This piece of a later row: four rows further flips one bit of the swizzle, eight rows none.
    const uint32_t at = (to ^ (row % 8 * 16)) + row * Tile::kPanelRowBytes;
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      ptx::cp_async_16(at + panel * Tile::kPanelBytes,
                       from + (stride * row + panel * Tile::kPanelChunks));
    }
  }
}

// Copies rows [kBegin, kEnd) of a tile that has `rows` rows: zeros after them and past head_dim.
template <class Tile, int kThreads, int kBegin, int kEnd>
__device__ __forceinline__ void copy_rows(unsigned char* tile, const uint16_t* source,
                                          int64_t stride, int rows, int head_dim,
                                          const void* readable, int thread) {
  constexpr int kPassRows = kThreads / 8;
  const int chunk = thread % 8, first_row = kBegin + thread / 8;
  const uint16_t* from = source + (first_row * stride + 8 * chunk);
#pragma unroll 1
  for (int row = first_row; row < kEnd; row += kPassRows, from += kPassRows * stride) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const int its_chunk = panel * Tile::kPanelChunks + chunk;
      const bool valid = row < rows && 8 * its_chunk < head_dim;
      ptx::cp_async_16(tile + Tile::chunk_offset(row, its_chunk),
                       valid ? from + panel * Tile::kPanelColumns : readable, valid);
    }
  }
}

}  // namespace flashcore::cuda::forward_sm80::latency
