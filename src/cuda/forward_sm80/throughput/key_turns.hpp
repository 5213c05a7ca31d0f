// The order in which a block of forward_sm80_throughput visits its KV tiles.
//
// With ALiBi, the keys near a row's diagonal have most of its weight. A key with much of a row's
// weight must be a power of two in P, and only the reference's key is: if two keys of similar
// weight and opposite values cancel, the rounding of both remains. Therefore the tiles that the
// diagonal crosses come first; without a running maximum, they determine the reference.
//
//   tiles   | begin ... | first ... last | ... end |
//   turns   |  3  4  5  |  0    ..   1   |   2     |   counted from the first
//
// constexpr: the host tests it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashcore::cuda::forward_sm80::throughput {

struct KeyTurns {
  int begin, end;  // of the block's tiles
  int first;       // the first tile visited

  // `turn`: from `begin` to `end`, as if tiles were visited in the order of their keys.
  constexpr int tile(int turn) const {
    const int tile = turn - begin + first;
    return tile < end ? tile : tile - (end - begin);
  }
};

// Returns the tile of key `key`, or the nearest tile of [begin, end).
constexpr int nearest_tile(int64_t key, int begin, int end, int block_kv) {
  const int64_t first = int64_t{begin} * block_kv, last = int64_t{end} * block_kv - 1;
  return static_cast<int>(std::clamp(key, first, last) / block_kv);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
