// Splits the work of a launch into units by its lengths. This happens on the device: a
// plan knows only the largest sizes, and one captured launch serves all later lengths.
//
//   keys that a sequence's queries see   | part 0 | part 1 | ... | last, shorter |
//   unit = (sequence, KV head, part, tile of 16 rows), in this order, rows fastest
//
// Blocks take units one by one. All parts of a sequence except the last have the same length, a whole number
// of granules. The length depends on the work of the whole launch, so that all blocks have some; in
// batch-invariant mode, only on the sequence's own keys. constexpr: shared by kernels, plans and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/decode/work.hpp"
#include "cuda/attention/entry.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "problem/sizes.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::decode::kGranule, attention::decode::divide_up;

inline constexpr int kMostOwnParts = 32;      // per sequence, batch invariant
inline constexpr int kFewestOwnGranules = 2;  // per part, batch invariant
inline constexpr int kLongUnit = 8;           // granules: up to this, a block gets one unit, ...
inline constexpr int kUnitsPerBlock = 4;      // ... beyond it this many, for balance

// Limit of units per launch: the units of a window of sequences can be counted in 32 bits.
inline constexpr int64_t kMostUnits = 1 << 23;

// Keys [begin, end) and tiles of rows of a sequence.
struct EntryWork {
  int begin, end;
  int row_tiles;

  constexpr int granules() const { return attention::decode::SeenKeys{begin, end, 0}.granules(); }
};

// The rows of a tile are queries of the sequence; row = query * group + head of the group.
constexpr EntryWork work_of(const attention::Entry& entry, const Band& band, int group) {
  const attention::decode::SeenKeys seen = attention::decode::seen_keys(entry, band, group);
  const auto rows = static_cast<unsigned>(seen.rows);
  return {seen.begin, seen.end, static_cast<int>((rows + kTileRows - 1) / kTileRows)};
}

// Returns the largest number of granules per unit, for `total` granules in all heads and tiles of rows.
constexpr int unit_granules(int64_t total, int blocks) {
  const int64_t one = divide_up(total, blocks);
  if (one <= kLongUnit) return one < 1 ? 1 : static_cast<int>(one);
  return static_cast<int>(std::max<int64_t>(kLongUnit, divide_up(one, kUnitsPerBlock)));
}

struct Parts {
  int count;
  int granules;  // of each except the last
};

// most: granules per unit, at most; 0: only the sequence's own keys count.
constexpr Parts parts_of(int granules, int most) {
  if (granules <= 0) return {0, 1};
  const auto all = static_cast<unsigned>(granules);
  unsigned each = std::max<unsigned>(kFewestOwnGranules, (all + kMostOwnParts - 1) / kMostOwnParts);
  if (most > 0) {
    const auto limit = static_cast<unsigned>(most);
    const unsigned count = (all + limit - 1) / limit;
    each = (all + count - 1) / count;
  }
  return {static_cast<int>((all + each - 1) / each), static_cast<int>(each)};
}

constexpr int units_of(const EntryWork& work, int heads, int most) {
  return parts_of(work.granules(), most).count * heads * work.row_tiles;
}

// Returns an upper bound of units per launch, for any lengths: the capacity of a workspace.
constexpr int64_t most_units(int64_t items, int64_t seqlen_kv, int64_t blocks,
                             bool batch_invariant) {
  const int64_t granules = divide_up(seqlen_kv, kGranule);
  if (batch_invariant) {
    const int64_t parts = std::min<int64_t>(kMostOwnParts, divide_up(granules, kFewestOwnGranules));
    return product_of({items, std::max<int64_t>(parts, 1)});
  }
  // The last part of each item, and the parts that the others share.
  return std::min(product_of({items, std::max<int64_t>(granules, 1)}),
                  sum_of({items, kUnitsPerBlock * blocks}));
}

// Returns an upper bound of (sequence, head, tile of rows).
constexpr int64_t most_items(int64_t batch, int64_t heads_kv, int64_t group, int64_t seqlen_q,
                             int64_t packed_rows) {
  const int64_t tiles = product_of({batch, divide_up(product_of({seqlen_q, group}), kTileRows)});
  if (packed_rows < 0) return product_of({heads_kv, tiles});
  const int64_t packed = sum_of({product_of({packed_rows, group}) / kTileRows, batch});
  return product_of({heads_kv, std::min(tiles, packed)});
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
