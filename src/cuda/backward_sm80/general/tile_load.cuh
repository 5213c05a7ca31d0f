// Loads rows of a matrix into a swizzled tile in shared memory, padded with zeros.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/element.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::backward_sm80::general {

// `first`: element index of the first row. Rows from rows_left on and columns
// past the matrix become 0. Asynchronous if the rows are aligned chunks.
template <class Element, class Tile, int kThreads>
__device__ __forceinline__ void load_tile(unsigned char* tile, const Source& source, int64_t first,
                                          int rows_left, int thread) {
  constexpr int kChunkElements = tile::kChunkBytes / kElementBytes<Element>;
  constexpr int kRowChunks = Tile::kRowChunks, kRowsAtOnce = kThreads / kRowChunks;
  static_assert(kThreads % kRowChunks == 0 && Tile::kRows % kRowsAtOnce == 0);
  const int chunk = thread % kRowChunks, column = chunk * kChunkElements;
  const void* const data = source.matrix.data;
  const int64_t row_stride = source.matrix.row;
  if (source.chunks) {
#pragma unroll 1
    for (int row = thread / kRowChunks; row < Tile::kRows; row += kRowsAtOnce) {
      const bool valid = row < rows_left && column < source.columns;
      const int64_t at = valid ? first + row * row_stride + column : 0;
      ptx::cp_async_16(tile + Tile::chunk_offset(row, chunk),
                       static_cast<const unsigned char*>(data) + at * kElementBytes<Element>,
                       valid);
    }
    return;
  }
#pragma unroll 1
  for (int row = thread / kRowChunks; row < Tile::kRows; row += kRowsAtOnce) {
    float x[kChunkElements];
#pragma unroll
    for (int e = 0; e < kChunkElements; ++e) {
      const bool valid = row < rows_left && column + e < source.columns;
      x[e] = valid ? load_element(source.type, data, first + row * row_stride + column + e) : 0;
    }
    uint4 chunk_bits;
    uint32_t* const words = reinterpret_cast<uint32_t*>(&chunk_bits);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      if constexpr (kIsFp32<Element>) {
        words[word] = __float_as_uint(x[word]);
      } else {
        words[word] = Element::pack(x[2 * word], x[2 * word + 1]);
      }
    }
    *reinterpret_cast<uint4*>(tile + Tile::chunk_offset(row, chunk)) = chunk_bits;
  }
}

// load_tile() for 16-bit elements, with a fast path if the tile lies entirely inside the matrix.
template <class Element, class Tile, int kThreads>
__device__ __forceinline__ void load_tile_quickly(unsigned char* tile, const Source& source,
                                                  int64_t first, int rows_left, int thread) {
  constexpr int kRowsAtOnce = kThreads / Tile::kRowChunks;
  static_assert(kRowsAtOnce % 8 == 0 && Tile::kRows % kRowsAtOnce == 0);  // same swizzle
  if (!source.chunks || rows_left < Tile::kRows || source.columns < Tile::kColumns) {
    load_tile<Element, Tile, kThreads>(tile, source, first, rows_left, thread);
    return;
  }
  const int chunk = thread % Tile::kRowChunks, row = thread / Tile::kRowChunks;
  const int64_t stride = source.matrix.row;
  const uint16_t* from = static_cast<const uint16_t*>(source.matrix.data) + first + row * stride +
                         chunk * (tile::kChunkBytes / 2);
  const uint32_t to = ptx::shared_address(tile) + Tile::chunk_offset(row, chunk);
#pragma unroll
  for (int i = 0; i < Tile::kRows / kRowsAtOnce; ++i) {
    ptx::cp_async_16(to + i * kRowsAtOnce * Tile::kPanelRowBytes,
                     reinterpret_cast<const uint4*>(from));
    from += kRowsAtOnce * stride;
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
