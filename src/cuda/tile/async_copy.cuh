// Rows of a global matrix into swizzled shared-memory tiles, by 16-byte asynchronous copies.
#pragma once

#include <cstdint>

#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::tile {

// One thread's part in copying a matrix tile after tile, kThreads threads together.
//
// A thread keeps its chunk column and steps down by a multiple of 8 rows, so that its swizzle never
// changes: it holds one running pointer, and shared-memory steps are constants.
template <class Tile, int kThreads>
class RowCopier {
  static constexpr int kRowsPerPass = kThreads / Tile::kRowChunks;
  static constexpr int kPasses = Tile::kRows / kRowsPerPass;
  static_assert(kThreads % Tile::kRowChunks == 0 && kRowsPerPass % 8 == 0);
  static_assert(Tile::kRows % kRowsPerPass == 0);

 public:
  // Starts at `matrix`, the first row of the first tile.
  __device__ RowCopier(const void* matrix, int64_t row_stride_bytes, int thread)
      : global_(static_cast<const unsigned char*>(matrix) + row(thread) * row_stride_bytes +
                thread % Tile::kRowChunks * kChunkBytes) {}

  // Issues the copies into `shared` and moves on by one tile. Rows at or past rows_left (more than
  // 0) become zero.
  __device__ __forceinline__ void copy(unsigned char* shared, int64_t row_stride_bytes,
                                       int rows_left, int thread) {
    unsigned char* to = shared + Tile::chunk_offset(row(thread), thread % Tile::kRowChunks);
    const int64_t step = kRowsPerPass * row_stride_bytes;
    if (rows_left >= Tile::kRows) {
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        ptx::cp_async_16(to + i * kRowsPerPass * Tile::kPanelRowBytes, global_);
        global_ += step;
      }
    } else {
      const int inside = rows_left - row(thread);
      const unsigned char* readable = global_ - row(thread) * row_stride_bytes;
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        const bool valid = i * kRowsPerPass < inside;
        ptx::cp_async_16(to + i * kRowsPerPass * Tile::kPanelRowBytes, valid ? global_ : readable,
                         valid);
        global_ += step;
      }
    }
  }

 private:
  __device__ static int row(int thread) { return thread / Tile::kRowChunks; }

  const unsigned char* global_;
};

}  // namespace flashcore::cuda::tile
