// The KV tiles that a group of queries visits, and the visible pairs of a tile:
// problem/visibility.hpp in 32 bits, for kernels, which compute it before they can start.
//
//   keys    | skipped | masked | mask-free ... mask-free | masked | skipped |
//   tiles           begin   full_begin               full_end    end
//
// Kernels loop over [begin, end) and test pairs only outside of
// [full_begin, full_end). constexpr: shared by kernels and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem/visibility.hpp"

namespace flashcore::cuda::attention {

// Sequences are shorter than this, and a larger limit of the band is
// equivalent to none: sums of a row, a limit and a tile fit 32 bits.
inline constexpr int kMostRows = 1 << 29;

// A visible pair has key - query in [low, high] and key < len_kv.
struct BandLimits {
  int low, high, len_kv;

  constexpr bool open_left() const { return low <= -kMostRows; }
};

// `left` and `right` as in Band: negative if unlimited, otherwise at most 2^32, like `offset`.
constexpr BandLimits band_limits(int64_t left, int64_t right, int64_t offset, int len_kv) {
  const int64_t low = left < 0 ? -kMostRows : offset - left;
  const int64_t high = right < 0 ? kMostRows : offset + right;
  return {static_cast<int>(std::clamp<int64_t>(low, -kMostRows, kMostRows)),
          static_cast<int>(std::clamp<int64_t>(high, -kMostRows, kMostRows)), len_kv};
}

constexpr BandLimits band_limits(const Sequence& sequence, const Band& band) {
  return band_limits(band.left, band.right, sequence.offset, static_cast<int>(sequence.len_kv));
}

// In KV tiles; full_begin == full_end == end if every tile needs the mask.
struct TileRange {
  int begin = 0;
  int full_begin = 0;
  int full_end = 0;
  int end = 0;

  constexpr int size() const { return end - begin; }
  constexpr bool empty() const { return begin >= end; }
  constexpr bool needs_mask(int tile) const { return tile < full_begin || tile >= full_end; }
};

// Returns the tiles of block_kv keys that queries [first, last) visit; those from len_q on see nothing.
constexpr TileRange tile_range(const BandLimits& limits, int len_q, int first, int last,
                               int block_kv) {
  last = last < len_q ? last : len_q;
  if (last <= first) return {};
  const auto seen_from = [&](int query) { return std::max(0, query + limits.low); };
  const auto seen_to = [&](int query) { return std::min(limits.len_kv, query + limits.high + 1); };
  const int begin = seen_from(first), end = seen_to(last - 1);
  if (end <= begin) return {};
  TileRange range;
  const auto block = static_cast<unsigned>(block_kv);
  range.begin = static_cast<int>(static_cast<unsigned>(begin) / block);
  range.end = static_cast<int>((static_cast<unsigned>(end) + block - 1) / block);
  const int full_begin = seen_from(last - 1), full_end = std::max(0, seen_to(first));
  range.full_begin = static_cast<int>((static_cast<unsigned>(full_begin) + block - 1) / block);
  range.full_end = static_cast<int>(static_cast<unsigned>(full_end) / block);
  if (range.full_end <= range.full_begin) range.full_begin = range.full_end = range.end;
  return range;
}

// Columns [begin, end) that `query` sees of a tile whose
// first key is `key`; either may lie outside of the tile.
struct ColumnRange {
  int begin, end;
};

constexpr ColumnRange visible_columns(const BandLimits& limits, int query, int key) {
  return {query + limits.low - key, std::min(query + limits.high + 1, limits.len_kv) - key};
}

}  // namespace flashcore::cuda::attention
