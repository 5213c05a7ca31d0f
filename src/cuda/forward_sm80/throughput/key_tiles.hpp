// Which tiles of keys some queries visit: attention/kv_range.hpp in 32 bits, which every block
// works out before it may start. Sequences have at most 2^30 rows.
//
// constexpr: the host tests it against the 64-bit functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

inline constexpr int kMostRows = 1 << 30;

// A visible pair has key - query in [low, high] and key < len_kv. Limits that no pair can pass are
// as good as none.
struct KeyLimits {
  int low, high, len_kv;
};

constexpr KeyLimits key_limits(const Sequence& sequence, const Band& band) {
  constexpr int64_t kMost = kMostRows;
  const int64_t low = band.left < 0 ? -kMost : sequence.offset - band.left;
  const int64_t high = band.right < 0 ? kMost : sequence.offset + band.right;
  return {static_cast<int>(std::clamp(low, -kMost, kMost)),
          static_cast<int>(std::clamp(high, -kMost, kMost - 1)), static_cast<int>(sequence.len_kv)};
}

// Keys [begin, end) that queries [first, last) may see, at least one of them or all.
struct Keys {
  int begin, end;
};
constexpr Keys keys_of_any(const KeyLimits& limits, int first, int last) {
  return {std::max(first + limits.low, 0), std::min(last + limits.high, limits.len_kv)};
}
constexpr Keys keys_of_all(const KeyLimits& limits, int first, int last) {
  return {std::max(last - 1 + limits.low, 0), std::min(first + limits.high + 1, limits.len_kv)};
}

// attention::tile_range; block_kv is a power of two.
constexpr attention::TileRange key_tiles(const KeyLimits& limits, int len_q, int first, int last,
                                         int block_kv) {
  last = std::min(last, len_q);
  const Keys any = keys_of_any(limits, first, last), all = keys_of_all(limits, first, last);
  if (first >= last || any.begin >= any.end) return {};
  const auto block = static_cast<uint32_t>(block_kv);
  const auto down = [=](int key) { return static_cast<int>(static_cast<uint32_t>(key) / block); };
  const auto up = [=](int key) {
    return static_cast<int>((static_cast<uint32_t>(key) + block - 1) / block);
  };
  attention::TileRange range{down(any.begin), up(all.begin), down(std::max(all.end, 0)),
                             up(any.end)};
  if (range.full_end <= range.full_begin) range.full_begin = range.full_end = range.end;
  return range;
}

// attention::visible_columns: columns [begin, end) of a tile, counted from `key`, that `query`
// sees.
constexpr attention::ColumnRange visible_columns(const KeyLimits& limits, int query, int key,
                                                 int columns) {
  const Keys seen = keys_of_any(limits, query, query + 1);
  return {std::clamp(seen.begin - key, 0, columns),
          std::clamp(std::max(seen.end, 0) - key, 0, columns)};
}

}  // namespace flashcore::cuda::forward_sm80::throughput
