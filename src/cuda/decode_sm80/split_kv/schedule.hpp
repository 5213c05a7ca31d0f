// How a launch cuts what its lengths ask for into units. The device decides: a plan knows the
// largest sizes only, and one captured launch serves every later length.
//
//   keys that an entry's queries see   | part 0 | part 1 | ... | last, shorter |
//   unit = (entry, key/value head, part, tile of 16 rows), in this order, rows fastest
//
// Blocks take units in turn. All parts of an entry but the last are equally long, a whole number of
// granules. How long goes by the work of the whole launch, so that all blocks have some; batch
// invariant, by the entry's own keys alone. constexpr: kernels, plans and host tests share it.
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

inline constexpr int kMostOwnParts = 32;      // of an entry, batch invariant
inline constexpr int kFewestOwnGranules = 2;  // of a part, batch invariant
inline constexpr int kLongUnit = 8;           // granules: up to it a block gets one unit, ...
inline constexpr int kUnitsABlock = 4;        // ... then so many, which even out

// Units of a launch at most: those of a window of entries can be counted in 32 bits.
inline constexpr int64_t kMostUnits = 1 << 23;

// Keys [begin, end), and tiles of rows, of a batch entry.
struct EntryWork {
  int begin, end;
  int row_tiles;

  constexpr int granules() const { return attention::decode::SeenKeys{begin, end, 0}.granules(); }
};

// Rows of a tile that are queries of the entry; row = query * group + head of the group.
constexpr EntryWork work_of(const attention::Entry& entry, const Band& band, int group) {
  const attention::decode::SeenKeys seen = attention::decode::seen_keys(entry, band, group);
  const auto rows = static_cast<unsigned>(seen.rows);
  return {seen.begin, seen.end, static_cast<int>((rows + kTileRows - 1) / kTileRows)};
}

// Granules of a unit at most, of `total` granules in all heads and tiles of rows.
constexpr int unit_granules(int64_t total, int blocks) {
  const int64_t one = divide_up(total, blocks);
  if (one <= kLongUnit) return one < 1 ? 1 : static_cast<int>(one);
  return static_cast<int>(std::max<int64_t>(kLongUnit, divide_up(one, kUnitsABlock)));
}

struct Parts {
  int count;
  int granules;  // of each but the last
};

// most: granules of a unit at most; 0: by the entry's own keys.
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

// Units of a launch at most, whatever the lengths are: what a workspace has room for.
constexpr int64_t most_units(int64_t items, int64_t seqlen_kv, int64_t blocks,
                             bool batch_invariant) {
  const int64_t granules = divide_up(seqlen_kv, kGranule);
  if (batch_invariant) {
    const int64_t parts = std::min<int64_t>(kMostOwnParts, divide_up(granules, kFewestOwnGranules));
    return product_of({items, std::max<int64_t>(parts, 1)});
  }
  // The part of an item's last, and what the others have to share.
  return std::min(product_of({items, std::max<int64_t>(granules, 1)}),
                  sum_of({items, kUnitsABlock * blocks}));
}

// (entry, head, tile of rows) at most.
constexpr int64_t most_items(int64_t batch, int64_t heads_kv, int64_t group, int64_t seqlen_q,
                             int64_t packed_rows) {
  const int64_t tiles = product_of({batch, divide_up(product_of({seqlen_q, group}), kTileRows)});
  if (packed_rows < 0) return product_of({heads_kv, tiles});
  const int64_t packed = sum_of({product_of({packed_rows, group}) / kTileRows, batch});
  return product_of({heads_kv, std::min(tiles, packed)});
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
