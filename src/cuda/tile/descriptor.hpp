// Shared-memory matrix descriptors of wgmma: an operand's address and swizzle.
//
//   bits  0-13  start address / 16          bits 49-51  base offset: 0, tiles are 1024-byte aligned
//   bits 16-29  leading byte offset / 16    bits 62-63  swizzle: 1 = 128 bytes, 2 = 64, 3 = 32
//   bits 32-45  stride byte offset / 16
//
// Operands are SmemTiles of 16-bit elements in panels of 128 bytes per row (64 columns).
//
//   K-major   A, and B = K^T: a row is a row of A or a column of B, its elements run along the
//             product's k. The stride offset leads to the next 8 rows. A k16 step is 32 bytes
//             within a panel, four steps per panel. The leading offset is not used.
//   MN-major  B = V: a row is one k, its elements run along n. The stride offset leads to the next
//             8 k rows, the leading offset to the next panel of 64 n. A k16 step is 16 rows.
#pragma once

#include <cstdint>

#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::tile {

enum class DescriptorSwizzle : uint32_t { none = 0, span_128 = 1, span_64 = 2, span_32 = 3 };

// The descriptor of an operand that starts at shared-memory address `address`.
constexpr uint64_t smem_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes,
                                   DescriptorSwizzle swizzle) {
  const uint32_t low = ((address >> 4) & 0x3fffu) | (((leading_bytes >> 4) & 0x3fffu) << 16);
  const uint32_t high = ((stride_bytes >> 4) & 0x3fffu) | (static_cast<uint32_t>(swizzle) << 30);
  return (static_cast<uint64_t>(high) << 32) | low;
}

inline constexpr uint32_t kEightRowBytes = 8 * 128;

// Byte offset of k16 step `step` in a K-major tile, from the address of its first row.
template <class Tile>
constexpr uint32_t k_major_step(int step) {
  static_assert(Tile::kElementBytes == 2 && Tile::kPanelRowBytes == 128);
  return static_cast<uint32_t>(step / 4 * Tile::kPanelBytes + step % 4 * 32);
}

// Returns the descriptor of rows row0.. (a multiple of 8) and k16 step `step` of a K-major tile.
template <class Tile>
constexpr uint64_t k_major_descriptor(uint32_t tile_address, int row0, int step) {
  const uint32_t start =
      tile_address + static_cast<uint32_t>(row0) * Tile::kPanelRowBytes + k_major_step<Tile>(step);
  return smem_descriptor(start, 16, kEightRowBytes, DescriptorSwizzle::span_128);
}

// Returns the descriptor of rows 16*step.. of an MN-major tile at `tile_address`, all its columns.
template <class Tile>
constexpr uint64_t mn_major_descriptor(uint32_t tile_address, int step) {
  static_assert(Tile::kElementBytes == 2 && Tile::kPanelRowBytes == 128);
  const uint32_t start = tile_address + static_cast<uint32_t>(step) * 16 * Tile::kPanelRowBytes;
  return smem_descriptor(start, Tile::kPanelBytes, kEightRowBytes, DescriptorSwizzle::span_128);
}

}  // namespace flashcore::cuda::tile
