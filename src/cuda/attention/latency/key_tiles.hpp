// Which keys a tile of queries of a latency kernel visits, and who of several parts takes them: on
// Hopper a cluster's four warpgroups.
//
//   tile of 64 keys     begin  +1   +2   +3   +4  ...        part p = rank + 2 * group
//   part                  0     1    2    3    0
//
// Neighbouring tiles go to different blocks, so that few keys are still loaded by both. constexpr:
// kernels and host tests use the same functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::attention::latency {

inline constexpr int kBlockKv = 64;  // keys of a tile

// Lengths are below this, and limits further out are as good as none: sums stay inside 32 bits.
inline constexpr int kLargestSeqlen = 1 << 28, kNoLimit = 1 << 29;

// Not std::clamp, which takes the address of a constant: device code has none, and would trap.
constexpr int kept_near(int limit) {
  return limit < -kNoLimit ? -kNoLimit : limit > kNoLimit ? kNoLimit : limit;
}

constexpr BandLimits small_limits(const Sequence& sequence, const Band& band) {
  BandLimits limits = attention::band_limits(sequence, band);
  limits.low = kept_near(limits.low);
  limits.high = kept_near(limits.high);
  return limits;
}

// Tiles [begin, end) are visited; those outside of [full_begin, full_end) need a mask.
struct TileSpan {
  int begin = 0, end = 0;
  int full_begin = 0, full_end = 0;

  constexpr int size() const { return end - begin; }
  constexpr bool needs_mask(int tile) const { return tile < full_begin || tile >= full_end; }
};

// What queries [first, last) visit; all of them are in use.
constexpr TileSpan tile_span(const BandLimits& limits, int first, int last) {
  const int begin = std::max(0, first + limits.low);
  const int end = std::min(limits.len_kv, last + limits.high);
  if (last <= first || end <= begin) return {};
  const int common_begin = std::max(0, last - 1 + limits.low);
  const int common_end = std::max(0, std::min(limits.len_kv, first + limits.high + 1));
  return {begin / kBlockKv, (end + kBlockKv - 1) / kBlockKv,
          (common_begin + kBlockKv - 1) / kBlockKv, common_end / kBlockKv};
}

// The same where all of `tiles` tiles are full, and no row's keys begin late.
constexpr TileSpan band_span(int tiles, int high, int first, int last) {
  const int end = std::max(0, last + high), common_end = std::max(0, first + high + 1);
  const int seen = static_cast<int>((static_cast<unsigned>(end) + kBlockKv - 1) / kBlockKv);
  const int full = static_cast<int>(static_cast<unsigned>(common_end) / kBlockKv);
  return {0, std::min(tiles, seen), 0, std::min(tiles, full)};
}

// The part of a warpgroup of a cluster of `ranks` blocks.
constexpr int part_of(int rank, int group, int ranks) { return rank + ranks * group; }

// How many of `tiles` tiles part `part` of `parts` takes; its i-th is number part + i * parts.
constexpr int tiles_of(int tiles, int part, int parts) {
  return static_cast<int>(static_cast<unsigned>(tiles + parts - 1 - part) /
                          static_cast<unsigned>(parts));
}

// Columns [begin, end) of the tile at `key` that `query` sees; either may lie outside of the tile.
struct Columns {
  int begin, end;
};

constexpr Columns columns_of(const BandLimits& limits, int query, int key) {
  return {query + limits.low - key, std::min(query + limits.high + 1, limits.len_kv) - key};
}

}  // namespace flashcore::cuda::attention::latency
