// Which tile of queries comes when, and which blocks of keys its rows visit, in 32 bits: what one
// producer thread with few registers works out for a whole block. Lengths are below 2^29.
//
//   keys    | skipped | masked | mask-free ... mask-free | masked | skipped |
//   blocks          begin   full_begin               full_end    end
//
// Blocks are taken from the right: the masked end comes first, then those without a mask.
// constexpr: the kernel and the host tests use the same functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace flashcore::cuda::forward_sm90::throughput {

inline constexpr int kMostConsumers = 3;
inline constexpr int kFar = 1 << 29;  // further than any key is from any query

// n / d, at once where that is 0, as it is for most of what a launch asks: a division takes long.
constexpr uint32_t quotient(uint32_t n, uint32_t d) { return n < d ? 0 : n / d; }

// Number `index` of a launch's tiles. Plainly, the tiles of a head follow each other, so that
// blocks which run together share its keys. Longest first: sections of heads whose keys and values
// stay in L2 together, and within a section the last query tiles of all its heads, which a causal
// mask leaves most keys, first.
struct TileOrder {
  uint32_t batch_heads;
  uint32_t q_tiles;
  uint32_t section_heads;  // 1 .. batch_heads
  bool longest_first;

  struct Place {
    uint32_t batch_head, q_tile;
  };

  constexpr uint32_t size() const { return batch_heads * q_tiles; }

  constexpr Place at(uint32_t index) const {
    if (!longest_first) {
      const uint32_t head = quotient(index, q_tiles);
      return {head, index - head * q_tiles};
    }
    const uint32_t section_tiles = section_heads * q_tiles;
    const uint32_t section = quotient(index, section_tiles);
    const uint32_t within = index - section * section_tiles;
    const uint32_t left = batch_heads - section * section_heads;
    const uint32_t heads = section_heads < left ? section_heads : left;
    const uint32_t rank = quotient(within, heads);
    return {section * section_heads + (within - rank * heads), q_tiles - 1 - rank};
  }
};

// Tiles of an entry with so many rows.
constexpr uint32_t tiles_of(int rows, int block_q) {
  return (static_cast<uint32_t>(rows) + static_cast<uint32_t>(block_q) - 1) /
         static_cast<uint32_t>(block_q);
}

// How many heads make a section, at an entry's own number of keys: those whose keys and values
// together are `section_rows` rows, with all query heads that read them.
constexpr uint32_t section_heads(uint32_t section_rows, uint32_t keys, uint32_t group,
                                 uint32_t heads) {
  const uint64_t fit = uint64_t{section_rows / (keys > 0 ? keys : 1)} * group;
  const uint64_t most = fit < heads ? fit : heads;
  return most > 0 ? static_cast<uint32_t>(most) : 1;
}

// A visible pair has key - query in [low, high] and key < len_kv.
struct BandLimits {
  int low, high, len_kv;

  constexpr bool open_left() const { return low <= -kFar; }
};

// `left` and `right` as in Band, negative without limit.
constexpr BandLimits band_limits(int64_t left, int64_t right, int64_t offset, int len_kv) {
  const int64_t low = left < 0 ? -kFar : offset - left;
  const int64_t high = right < 0 ? kFar : offset + right;
  return {static_cast<int>(std::clamp<int64_t>(low, -kFar, kFar)),
          static_cast<int>(std::clamp<int64_t>(high, -kFar, kFar)), len_kv};
}

struct BlockRange {
  int begin = 0;
  int full_begin = 0;
  int full_end = 0;
  int end = 0;

  constexpr bool empty() const { return begin >= end; }
  constexpr bool needs_mask(int block) const { return block < full_begin || block >= full_end; }
};

// The blocks that queries [first, last) visit; those from len_q on see nothing.
constexpr BlockRange block_range(const BandLimits& limits, int len_q, int first, int last,
                                 int block_kv) {
  last = last < len_q ? last : len_q;
  if (last <= first) return {};
  const auto seen_from = [&](int query) { return std::max(0, query + limits.low); };
  const auto seen_to = [&](int query) { return std::min(limits.len_kv, query + limits.high + 1); };
  const int begin = seen_from(first), end = seen_to(last - 1);
  if (end <= begin) return {};
  BlockRange range;
  const auto block = static_cast<unsigned>(block_kv);
  range.begin = static_cast<int>(static_cast<unsigned>(begin) / block);
  range.end = static_cast<int>((static_cast<unsigned>(end) + block - 1) / block);
  const int full_begin = seen_from(last - 1), full_end = std::max(0, seen_to(first));
  range.full_begin = static_cast<int>((static_cast<unsigned>(full_begin) + block - 1) / block);
  range.full_end = static_cast<int>(static_cast<unsigned>(full_end) / block);
  if (range.full_end <= range.full_begin) range.full_begin = range.full_end = range.end;
  return range;
}

// Columns [begin, end) of a block whose first key is `key`, that `query` sees; both may lie outside
// of the block.
struct ColumnRange {
  int begin, end;
};

constexpr ColumnRange visible_columns(const BandLimits& limits, int query, int key) {
  return {query + limits.low - key, std::min(query + limits.high + 1, limits.len_kv) - key};
}

// What a block knows of a tile.
struct TaskInfo {
  int batch, head;  // batch: 0 in packed tensors
  int kv_head;      // whose keys and values the head reads
  int first_query;  // of the tile, in its entry
  int q_row;        // of the tile's first row in the tensors: first_query, or that of a packed one
  int kv_row;       // of key 0, likewise
  int len_q;        // queries in use
  int rows_q;       // rows of O and LSE that belong to the entry, at least len_q
  int begin, end;   // blocks of keys that are copied
  BandLimits limits;
  BlockRange seen[kMostConsumers];  // blocks that each consumer's rows see

  static constexpr int kNoMore = -1;  // as rows_q: there are no more tiles
  constexpr bool is_tile() const { return rows_q != kNoMore; }
};

}  // namespace flashcore::cuda::forward_sm90::throughput
