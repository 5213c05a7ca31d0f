// The rows of a tile that hold its keys, and thus the keys whose scores a lane owns.
//
// A lane of a quad (t = lane % 4) owns columns 2 t and 2 t + 1 of each product of 8 keys. With keys
// in order, these are two neighbours, and a bias would be read in pieces of two. In quads, rows of
// K and V are permuted within 16 keys so that a lane's columns of two products are four neighbours:
//
//   product            n = 2 m         n = 2 m + 1
//   columns      0 1 2 3 4 5 6 7    0  1  2  3  4  5  6  7
//   keys, plain  0 1 2 3 4 5 6 7    8  9 10 11 12 13 14 15
//   keys, quads  0 1 4 5 8 9 12 13  2  3  6  7 10 11 14 15
//
// constexpr; tested on the host.
#pragma once

namespace flashcore::cuda::forward_sm80::throughput {

enum class KeyOrder { plain, quads };

// The period of the order, in rows.
constexpr int order_rows(KeyOrder order) { return order == KeyOrder::quads ? 16 : 8; }

// Returns the key in row `row` of a tile.
constexpr int key_of_row(KeyOrder order, int row) {
  if (order == KeyOrder::plain) return row;
  return (row & ~15) | (row & 6) << 1 | (row & 8) >> 2 | (row & 1);
}

// A lane's first key, and the distance from it to the key of column e of its product n.
constexpr int first_key_of_lane(KeyOrder order, int lane) {
  return lane % 4 * (order == KeyOrder::quads ? 4 : 2);
}
constexpr int key_distance(KeyOrder order, int n, int e) {
  return order == KeyOrder::quads ? n / 2 * 16 + n % 2 * 2 + e : 8 * n + e;
}

}  // namespace flashcore::cuda::forward_sm80::throughput
