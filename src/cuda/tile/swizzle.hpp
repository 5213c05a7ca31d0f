// XOR swizzle of 16-byte chunks in a shared-memory tile, and a counter of the
// bank conflicts that it removes. constexpr: shared by kernels and host tests.
//
// Shared memory has 32 banks of 4 bytes, that is 8 groups of 16 bytes. A warp
// that reads a column of 16-byte chunks (ldmatrix: 8 rows, one chunk per row)
// needs the 8 rows in 8 different groups. Without a swizzle, rows of 128
// bytes put them all in one group; the swizzle moves chunk c of row r to
//
//   64-byte rows    c ^ ((r / 2) % 4)   two rows fill 128 bytes, so the key advances every 2 rows
//   128-byte rows   c ^ (r % 8)
//   256-byte rows   c ^ (r % 8)         within each 128-byte half
//
// Within a row this is a permutation of the chunks, so no memory is lost and 16-byte copies still
// write whole chunks.
#pragma once

#include <array>
#include <cstdint>

namespace flashcore::cuda::tile {

inline constexpr int kChunkBytes = 16;
inline constexpr int kBankGroups = 8;  // 128 bytes: shared memory's throughput per cycle

// Returns the position of chunk `chunk` of row `row`, as a chunk index within that row.
template <int kRowBytes>
constexpr int swizzle_chunk(int row, int chunk) {
  static_assert(kRowBytes == 64 || kRowBytes == 128 || kRowBytes == 256);
  if constexpr (kRowBytes == 64) return chunk ^ ((row >> 1) & 3);
  return chunk ^ (row & 7);
}

// Offset in 16-bit elements of element (row, column) of a swizzled tile.
template <int kRowBytes>
constexpr int swizzle_offset(int row, int column) {
  return row * (kRowBytes / 2) + swizzle_chunk<kRowBytes>(row, column >> 3) * 8 + (column & 7);
}

// Steps from one element of a swizzled tile to others, without the division into chunks: with (r,
// c) fixed for a lane, a whole fragment or copy costs one XOR with a constant and one addition
// each.
//
// Columns: if column0 is a multiple of 8 that shares no bit with c, and row0 a multiple of 8, then
//   swizzle_offset(row0 + r, column0 + c) = (swizzle_offset(r, c) ^ column0) + row0 * row length
// and the XOR may also be applied to an address (with 2 * column0), if the tile starts at a
// multiple of kRowBytes.
//
// Rows of 128 or 256 bytes: if `rows` is a multiple of a power of two that exceeds r, then
//   swizzle_offset(r + rows, c) =
//       (swizzle_offset(r, c) ^ swizzle_row_step(rows)) + rows * row length
constexpr int swizzle_row_step(int rows) { return (rows & 7) * 8; }

// Returns the 128-byte cycles beyond the first that one access of 8 chunks takes: lane i
// of 8 accesses the chunk at byte address address[i]; equal addresses are served together.
constexpr int bank_conflicts(const std::array<uint32_t, 8>& address) {
  int worst = 0;
  for (uint32_t group = 0; group < kBankGroups; ++group) {
    int distinct = 0;
    for (int i = 0; i < 8; ++i) {
      if (address[i] / kChunkBytes % kBankGroups != group) continue;
      bool seen = false;
      for (int j = 0; j < i; ++j) seen = seen || address[j] == address[i];
      if (!seen) ++distinct;
    }
    if (distinct > worst) worst = distinct;
  }
  return worst > 0 ? worst - 1 : 0;
}

// Conflicts of an ldmatrix.x4 read of a 16x16 fragment at (row0,
// column0): four phases, each of 8 rows of one chunk column.
template <int kRowBytes>
constexpr int fragment_conflicts(int row0, int column0, bool swizzled) {
  int total = 0;
  for (int phase = 0; phase < 4; ++phase) {
    std::array<uint32_t, 8> address{};
    for (int i = 0; i < 8; ++i) {
      const int row = row0 + (phase & 1) * 8 + i;
      const int chunk = column0 / 8 + phase / 2;
      const int stored = swizzled ? swizzle_chunk<kRowBytes>(row, chunk) : chunk;
      address[static_cast<std::size_t>(i)] =
          static_cast<uint32_t>(row * kRowBytes + stored * kChunkBytes);
    }
    total += bank_conflicts(address);
  }
  return total;
}

// Conflicts of writes of 32 consecutive chunks, row by row,
// as in a warp's 16-byte copies: four phases of 8 lanes.
template <int kRowBytes>
constexpr int copy_conflicts(int first_row, bool swizzled) {
  constexpr int kChunks = kRowBytes / kChunkBytes;
  int total = 0;
  for (int phase = 0; phase < 4; ++phase) {
    std::array<uint32_t, 8> address{};
    for (int i = 0; i < 8; ++i) {
      const int index = phase * 8 + i, row = first_row + index / kChunks, chunk = index % kChunks;
      const int stored = swizzled ? swizzle_chunk<kRowBytes>(row, chunk) : chunk;
      address[static_cast<std::size_t>(i)] =
          static_cast<uint32_t>(row * kRowBytes + stored * kChunkBytes);
    }
    total += bank_conflicts(address);
  }
  return total;
}

}  // namespace flashcore::cuda::tile
