// Tiles of queries of a packed batch, without a launch for tiles that no entry has.
//
// Only the device knows where entries begin. But entry i, beginning at row r of the packed tensor,
// can be given the slots from r / block_q + i on: up to those of the next entry they are always
// enough for its tiles, and there are only total / block_q + batch of them.
//
//   block_q 4   rows    | entry 0: 6 | 1: 1 | 2: 5    |      12 rows, 3 entries: 3 + 3 slots
//               slots   0   1        2      3    4  5         slot 5 is empty
//               tiles   0.0 0.1      1.0    2.0  2.1 -
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

constexpr int64_t packed_slots(int64_t total_rows, int64_t batch, int64_t block_q) {
  return total_rows / block_q + batch;
}

constexpr int64_t first_slot(int64_t first_row, int64_t entry, int64_t block_q) {
  return first_row / block_q + entry;
}

struct PackedTile {
  int64_t entry;
  int64_t tile;   // in the entry; it may have fewer
  int64_t tiles;  // slots that the entry has
};

// first_row(i): where entry i begins, 0 .. batch, whatever is in memory; increasing where the
// answer matters. batch is at least 1.
template <class FirstRow>
constexpr PackedTile find_packed_tile(int64_t slot, int64_t batch, int64_t block_q,
                                      FirstRow first_row) {
  int64_t low = 0, high = batch;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first_slot(first_row(middle), middle, block_q) <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t first = first_slot(first_row(low), low, block_q);
  return {low, slot - first, first_slot(first_row(low + 1), low + 1, block_q) - first};
}

// The entry that has a row: the last that begins at it or before it. batch is at least 1.
template <class FirstRow>
constexpr int find_packed_row(int64_t row, int64_t batch, FirstRow first_row) {
  int64_t low = 0, high = batch;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (first_row(middle) <= row ? low : high) = middle;
  }
  return static_cast<int>(low);
}

}  // namespace flashcore::cuda::attention
