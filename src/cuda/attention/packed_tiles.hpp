// Query tiles of a packed batch, without launching tiles that no sequence has.
//
// Only the device knows where sequences begin. But sequence i, beginning at row r of the packed
// tensor, can be given the slots from r / block_q + i on: up to the next sequence's,
// there are always enough for its tiles, and there are only total / block_q + batch slots.
//
//   block_q 4   rows    | seq. 0: 6  | 1: 1 | 2: 5    |      12 rows, 3 sequences: 3 + 3 slots
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

// Returns the last of sequences 0 .. batch - 1 with begins(i) <= place,
// or 0 if there is none. begins increases with i. batch is at least 1.
template <class Begins>
constexpr int last_entry(int64_t place, int batch, Begins begins) {
  int low = 0, high = batch;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begins(middle) <= place ? low : high) = middle;
  }
  return low;
}

struct PackedTile {
  int entry;
  int64_t tile;   // in the sequence, which may have fewer
  int64_t tiles;  // slots of the sequence
};

// first_row(i): where sequence i begins, 0 .. batch, for any
// contents of memory; it must increase for a meaningful result.
template <class FirstRow>
constexpr PackedTile find_packed_tile(int64_t slot, int batch, int block_q, FirstRow first_row) {
  const auto slot_of = [=](int entry) { return first_slot(first_row(entry), entry, block_q); };
  const int entry = last_entry(slot, batch, slot_of);
  const int64_t first = slot_of(entry);
  return {entry, slot - first, slot_of(entry + 1) - first};
}

}  // namespace flashcore::cuda::attention
