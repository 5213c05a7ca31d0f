// A swizzled tile whose panels of 8 rows are contiguous, so that one box of TMA has all columns of a
// multiple of 8 rows. Otherwise like SmemTile.
//
//   group 0: panel 0: row 0 | ... | row 7 | panel 1: row 0 | ... | row 7 | group 1: ...
#pragma once

#include <cstdint>

#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::tile {

template <int kRows_, int kColumns_>
struct GroupedTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kElementBytes = 2;
  static constexpr int kRowBytes = kColumns * kElementBytes;
  static constexpr int kPanelRowBytes = 128, kPanelColumns = kPanelRowBytes / kElementBytes;
  static constexpr int kPanels = kRowBytes / kPanelRowBytes;
  static constexpr int kPanelBytes = 8 * kPanelRowBytes;  // from a panel to the next
  static constexpr int kGroupBytes = 8 * kRowBytes;       // from 8 rows to the next
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRowBytes % kPanelRowBytes == 0 && kRows % 8 == 0);

  // Byte offset of 16-byte chunk `chunk` of row `row`.
  static constexpr uint32_t chunk_offset(int row, int chunk) {
    constexpr int kPanelChunks = kPanelRowBytes / kChunkBytes;
    const int panel = chunk / kPanelChunks, in_panel = chunk % kPanelChunks;
    return static_cast<uint32_t>(row / 8 * kGroupBytes + panel * kPanelBytes +
                                 row % 8 * kPanelRowBytes +
                                 swizzle_chunk<kPanelRowBytes>(row, in_panel) * kChunkBytes);
  }
};

// Bytes from 8 rows of any tile to the next: the stride offset of descriptor.hpp.
template <class Tile>
constexpr int group_bytes() {
  if constexpr (requires { Tile::kGroupBytes; }) return Tile::kGroupBytes;
  return 8 * Tile::kPanelRowBytes;
}

}  // namespace flashcore::cuda::tile
