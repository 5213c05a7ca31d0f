// Which tiles of keys a group of queries visits, and which pairs of a visited tile count.
//
//   keys    | skipped | masked | mask-free ... mask-free | masked | skipped |
//   tiles           begin   full_begin               full_end    end
//
// Kernels loop over [begin, end) and look at pairs only outside of [full_begin, full_end).
// constexpr: kernels and host tests use the same functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "problem/visibility.hpp"

namespace flashcore::cuda::attention {

// In tiles of keys; full_begin == full_end == end when every tile needs the mask.
struct TileRange {
  int begin = 0;
  int full_begin = 0;
  int full_end = 0;
  int end = 0;
};

// The tiles of block_kv keys that queries [first, last) visit. Queries past the sequence's length
// see nothing and make no tile masked.
constexpr TileRange tile_range(const Sequence& sequence, const Band& band, int64_t first,
                               int64_t last, int block_kv) {
  last = std::min(last, sequence.len_q);
  const KeyRange hull = visible_keys(sequence, band, first, last);
  if (hull.empty()) return {};
  TileRange range;
  range.begin = static_cast<int>(hull.begin / block_kv);
  range.end = static_cast<int>((hull.end + block_kv - 1) / block_kv);
  const KeyRange common = common_keys(sequence, band, first, last);
  range.full_begin = static_cast<int>((common.begin + block_kv - 1) / block_kv);
  range.full_end = static_cast<int>(common.end / block_kv);
  if (range.full_end <= range.full_begin) range.full_begin = range.full_end = range.end;
  return range;
}

// The band and the length as 32-bit limits on key - query, which two lengths below 2^31 cannot
// pass: limits further out are as good as none.
struct BandLimits {
  int low = 0;   // a visible pair has key - query in [low, high] ...
  int high = 0;  // ... and key < len_kv
  int len_kv = 0;

  constexpr bool sees(int query, int key) const {
    const int64_t difference = int64_t{key} - query;
    return difference >= low && difference <= high && key < len_kv;
  }
};

constexpr BandLimits band_limits(const Sequence& sequence, const Band& band) {
  constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
  const int64_t low = band.left < 0 ? -kFar : sequence.offset - band.left;
  const int64_t high = band.right < 0 ? kFar : sequence.offset + band.right;
  return {static_cast<int>(std::clamp(low, -kFar, kFar)),
          static_cast<int>(std::clamp(high, -kFar, kFar)), static_cast<int>(sequence.len_kv)};
}

// Columns [begin, end) of a tile, counted from `key`, that `query` sees; both in 0 .. columns.
struct ColumnRange {
  int begin;
  int end;
};

constexpr ColumnRange visible_columns(const BandLimits& limits, int query, int key, int columns) {
  const int64_t difference = int64_t{key} - query;
  const int64_t begin = limits.low - difference;
  const int64_t end = std::min<int64_t>(limits.high - difference + 1, int64_t{limits.len_kv} - key);
  return {static_cast<int>(std::clamp<int64_t>(begin, 0, columns)),
          static_cast<int>(std::clamp<int64_t>(end, 0, columns))};
}

}  // namespace flashcore::cuda::attention
