// The keys that a query tile of a latency kernel visits, and their division
// into parts: on Hopper, one for each of a cluster's four warpgroups.
//
//   tile of 64 keys     begin  +1   +2   +3   +4  ...        part p = rank + 2 * group
//   part                  0     1    2    3    0
//
// Neighbouring tiles go to different blocks, so that even few keys
// are loaded by both. constexpr: shared by kernels and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::attention::latency {

inline constexpr int kBlockKv = 64;  // keys per tile

// attention::tile_range of queries [first, last) if all of `tiles`
// tiles are full, and every row's keys begin in the first tile.
constexpr TileRange band_range(int tiles, int high, int first, int last) {
  const int end = std::max(0, last + high), common_end = std::max(0, first + high + 1);
  const int seen = static_cast<int>((static_cast<unsigned>(end) + kBlockKv - 1) / kBlockKv);
  const int full = static_cast<int>(static_cast<unsigned>(common_end) / kBlockKv);
  return {0, 0, std::min(tiles, full), std::min(tiles, seen)};
}

// Returns the part of a warpgroup in a cluster of `ranks` blocks.
constexpr int part_of(int rank, int group, int ranks) { return rank + ranks * group; }

// Returns how many of `tiles` tiles part `part` of `parts` has; its i-th is number part + i * parts.
constexpr int tiles_of(int tiles, int part, int parts) {
  return static_cast<int>(static_cast<unsigned>(tiles + parts - 1 - part) /
                          static_cast<unsigned>(parts));
}

}  // namespace flashcore::cuda::attention::latency
