// A two-dimensional tile in shared memory, swizzled so that 16-byte pieces of eight consecutive
// rows lie in eight different bank groups: ldmatrix, cp.async and row-wise vector accesses are all
// free of conflicts.
//
// The tile is divided into panels of 128 bytes per row (one of 64 bytes if rows are that short);
// the panels are contiguous. Within a panel, chunk c of row r is stored at chunk swizzle_chunk(r,
// c). This is bit for bit what TMA writes and wgmma reads with the 128-byte and 64-byte swizzles,
// so one layout serves every kernel. The tile starts at a multiple of 1024 bytes.
//
//   panel 0: row 0 | row 1 | ... | row R-1 | panel 1: row 0 | ...
#pragma once

#include <cstdint>

#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::tile {

inline constexpr int kTileAlignment = 1024;

// The permutation in the hardware's form, on byte offsets from an
// aligned start; kSpan is the swizzle's width in bytes, 128, 64 or 32.
template <int kSpan>
constexpr uint32_t swizzle_bytes(uint32_t offset) {
  static_assert(kSpan == 128 || kSpan == 64 || kSpan == 32);
  return offset ^ (((offset >> 7) & (kSpan / 16 - 1)) << 4);
}

template <int kRows_, int kColumns_, int kElementBytes_>
struct SmemTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kElementBytes = kElementBytes_;
  static constexpr int kRowBytes = kColumns * kElementBytes;
  static constexpr int kPanelRowBytes = kRowBytes < 128 ? kRowBytes : 128;  // also the swizzle span
  static constexpr int kPanels = kRowBytes / kPanelRowBytes;
  static constexpr int kPanelColumns = kPanelRowBytes / kElementBytes;
  static constexpr int kPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kBytes = kRows * kRowBytes;
  static constexpr int kRowChunks = kRowBytes / kChunkBytes;
  static constexpr int kPanelChunks = kPanelRowBytes / kChunkBytes;
  static_assert(kPanelRowBytes == 64 || kPanelRowBytes == 128);
  static_assert(kRowBytes % kPanelRowBytes == 0 && kPanelBytes % kTileAlignment == 0);

  // Byte offset of 16-byte chunk `chunk` of row `row`.
  static constexpr uint32_t chunk_offset(int row, int chunk) {
    const int panel = chunk / kPanelChunks, in_panel = chunk % kPanelChunks;
    return static_cast<uint32_t>(panel * kPanelBytes + row * kPanelRowBytes +
                                 swizzle_chunk<kPanelRowBytes>(row, in_panel) * kChunkBytes);
  }

  // Byte offset of one element.
  static constexpr uint32_t offset(int row, int column) {
    const int byte = column * kElementBytes;
    return chunk_offset(row, byte / kChunkBytes) + static_cast<uint32_t>(byte % kChunkBytes);
  }

  // Advances from offset (or address, if the tile is aligned) `at` of chunk
  // c < step of some row to chunk c + step * i of the same row, for a power
  // of two `step`: one XOR, and an addition that is constant if i is.
  template <int kStep>
  static constexpr uint32_t advance(uint32_t at, int i) {
    static_assert(kStep > 0 && (kStep & (kStep - 1)) == 0 && kStep <= kPanelChunks);
    const int chunk = kStep * i, panel = chunk / kPanelChunks, in_panel = chunk % kPanelChunks;
    return (at ^ static_cast<uint32_t>(in_panel * kChunkBytes)) +
           static_cast<uint32_t>(panel * kPanelBytes);
  }
};

}  // namespace flashcore::cuda::tile
