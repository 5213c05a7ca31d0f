// The order in which a block of forward_sm80_throughput takes its tiles of keys.
//
// With ALiBi the keys beside a row's diagonal have most of its weight, and a key that has much of a
// row has to be a power of two in P, which only that of the reference is: two keys of similar
// weight and opposite values cancel, and leave the rounding of both. So the tiles that the diagonal
// crosses come first; without a maximum the reference stays what they make it.
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
  int first;       // the first that is taken

  // `turn`: from `begin` to `end`, as of tiles in the order of their keys.
  constexpr int tile(int turn) const {
    const int tile = turn - begin + first;
    return tile < end ? tile : tile - (end - begin);
  }
};

// The tile that key `key` is in, or the one of [begin, end) that is nearest to it.
constexpr int nearest_tile(int64_t key, int begin, int end, int block_kv) {
  const int64_t first = int64_t{begin} * block_kv, last = int64_t{end} * block_kv - 1;
  return static_cast<int>(std::clamp(key, first, last) / block_kv);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
