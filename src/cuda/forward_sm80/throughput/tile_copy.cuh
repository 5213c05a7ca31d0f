// Copies rows of Q, K and V into swizzled shared-memory tiles.
//
// A thread owns one 16-byte chunk column of every 128-byte panel and every kRowsPerPass-th row:
//
//   thread t:  chunk t % 8 of each panel, rows t / 8, t / 8 + kRowsPerPass, ...
//
// The row step is a multiple of 8, so a thread's swizzle never changes, panels are
// constant offsets from one pointer per row, and eight threads read 128 contiguous bytes.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/key_order.hpp"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

template <class Tile, int kHeadDim, int kThreads, KeyOrder kOrder = KeyOrder::plain>
struct TileCopy {
  static constexpr int kPanelChunks = Tile::kPanelChunks;
  static constexpr int kRowsPerPass = kThreads / kPanelChunks;
  static constexpr int kPasses = Tile::kRows / kRowsPerPass;
  static constexpr int kElementBytes = Tile::kElementBytes;
  static constexpr int kRowChunks = kHeadDim * kElementBytes / tile::kChunkBytes;
  static_assert(kRowsPerPass % order_rows(kOrder) == 0 && Tile::kRows % kRowsPerPass == 0);

  __device__ static int row_of(int thread) { return thread / kPanelChunks; }
  __device__ static int chunk_of(int thread) { return thread % kPanelChunks; }

  // Returns the matrix's row for that row of the tile, counted from the tile's first.
  __device__ static int source_row(int thread) { return key_of_row(kOrder, row_of(thread)); }

  // Returns this thread's starting address in a matrix whose first row is at `data`.
  __device__ static const unsigned char* start(const void* data, int64_t row_bytes, int thread) {
    return static_cast<const unsigned char*>(data) + source_row(thread) * row_bytes +
           chunk_of(thread) * tile::kChunkBytes;
  }
  __device__ static unsigned char* target(unsigned char* tile, int thread) {
    return tile + Tile::chunk_offset(row_of(thread), chunk_of(thread));
  }

  // Copies a tile entirely inside the matrix, with rows of kHeadDim elements.
  // Returns the start of the next tile. pass_bytes: size of kRowsPerPass rows.
  __device__ static const unsigned char* whole(unsigned char* tile, const unsigned char* source,
                                               int64_t pass_bytes, int thread) {
    unsigned char* const to = target(tile, thread);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      whole_row(to, source, pass, thread);
      source += pass_bytes;
    }
    return source;
  }

  // Copies the thread's row of one pass. `to`: target(tile, thread).
  __device__ static void whole_row(unsigned char* to, const unsigned char* source, int pass,
                                   int thread) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const int first = panel * kPanelChunks;
      if (first + kPanelChunks <= kRowChunks || first + chunk_of(thread) < kRowChunks) {
        ptx::cp_async_16(to + panel * Tile::kPanelBytes + pass * kRowsPerPass * kPanelRow,
                         source + panel * kPanelRow);
      }
    }
  }

  // Copies a tile with zeros for rows at or past `rows` and
  // chunks at or past `chunks`. `readable`: any readable address.
  __device__ static const unsigned char* part(unsigned char* tile, const unsigned char* source,
                                              int64_t pass_bytes, int rows, int chunks,
                                              const void* readable, int thread) {
    unsigned char* const to = target(tile, thread);
#pragma unroll 1  // rarely run, and in many places
    for (int pass = 0; pass < kPasses; ++pass) {
      part_row(to, source, pass, pass * kRowsPerPass + source_row(thread) < rows, chunks, readable,
               thread);
      source += pass_bytes;
    }
    return source;
  }

  // Copies the thread's row of one pass, or zeros unless `used`.
  __device__ static void part_row(unsigned char* to, const unsigned char* source, int pass,
                                  bool used, int chunks, const void* readable, int thread) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const bool valid = used && panel * kPanelChunks + chunk_of(thread) < chunks;
      ptx::cp_async_16(to + panel * Tile::kPanelBytes + pass * kRowsPerPass * kPanelRow,
                       valid ? source + panel * kPanelRow : readable, valid);
    }
  }

  // Copies rows of any length and alignment, element by element and synchronously.
  __device__ __noinline__ static const unsigned char* elements(unsigned char* tile,
                                                               const unsigned char* source,
                                                               int64_t pass_bytes, int rows,
                                                               int columns, int thread) {
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll 1
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        uint32_t word[4] = {0, 0, 0, 0};
        constexpr int kChunkElements = tile::kChunkBytes / kElementBytes;
        const int column = (panel * kPanelChunks + chunk_of(thread)) * kChunkElements;
        const bool in_row = pass * kRowsPerPass + source_row(thread) < rows;
#pragma unroll
        for (int e = 0; e < kChunkElements; ++e) {
          if (!in_row || column + e >= columns) continue;
          const unsigned char* const at = source + panel * kPanelRow + kElementBytes * e;
          if constexpr (kElementBytes == 4) {
            word[e] = *reinterpret_cast<const uint32_t*>(at);
          } else if constexpr (kElementBytes == 1) {
            word[e / 4] |= static_cast<uint32_t>(*at) << (e % 4 * 8);
          } else {
            const auto bits = *reinterpret_cast<const uint16_t*>(at);
            word[e / 2] |= static_cast<uint32_t>(bits) << (e % 2 * 16);
          }
        }
        *reinterpret_cast<uint4*>(target(tile, thread) + panel * Tile::kPanelBytes +
                                  pass * kRowsPerPass * kPanelRow) =
            make_uint4(word[0], word[1], word[2], word[3]);
      }
      source += pass_bytes;
    }
    return source;
  }

 private:
  static constexpr int kPanelRow = Tile::kPanelRowBytes;
};

}  // namespace flashcore::cuda::forward_sm80::throughput
