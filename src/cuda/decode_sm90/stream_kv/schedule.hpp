// Splits the work of a launch by its lengths. This happens on the device: a plan
// knows only the largest sizes, and one captured launch serves all later lengths.
//
//   item      a work item, one (sequence, KV head): a whole number of granules of keys
//   cost      of an item: its granules and, if there are more items than shares, what its end costs:
//             otherwise a share of many short items would end last
//   list      the work list: all items, as many positions each as it costs, heads within sequences
//   share i   positions [i, i + 1) * ceil(list / shares), for the blocks of row `i` of the grid
//   column    of the grid: the tile of rows; blocks of a row read the same keys at the same time
//
// A unit is the part of an item in a share. A share thus begins and ends with a unit that may
// be partial, and all units between are whole: two partial results per share, for any batch.
//
// In batch-invariant mode, an item is cut by its own keys only, and a part belongs to the
// share that has its first granule. constexpr: shared by kernels, plans and host tests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/decode/work.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/kv_range.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::decode::kGranule, attention::decode::divide_up, attention::decode::SeenKeys;

inline constexpr int kKnownEntries = 32;           // per batch: their lengths are in shared memory
inline constexpr int kMostEntries = 2048;          // per batch: their list is in shared memory
inline constexpr int kMostOwnParts = 16;           // per item, batch invariant
inline constexpr int kFewestOwnGranules = 8;       // per part, batch invariant
inline constexpr int64_t kMostGranules = 1 << 29;  // the list has at most twice as many positions
inline constexpr int64_t kMostJoinRows = 1 << 26;  // existing or not

// A sequence's rows and visible keys.
struct KnownEntry {
  attention::CachedEntry at;
  SeenKeys seen;
  attention::BandLimits limits;
};

constexpr KnownEntry known_entry(const attention::CachedEntry& at, const Band& band, int group) {
  return {at, attention::decode::seen_keys(at.entry, band, group),
          attention::band_limits(band.left, band.right, at.entry.offset, at.entry.len_kv)};
}

// The cost of an item. end: of its end.
constexpr int item_cost(int granules, int end) { return granules == 0 ? 0 : granules + end; }

// Returns the number of shares for `items` of `granules` each on so many blocks, where `filling` blocks read as fast as
// memory does: as many as blocks, or fewer that have whole items. As measured on an H200 (docs/decode.md), cuts cost 4% (blocks have a unit
// more) and as long as a block takes for three granules (the second kernel, which whole items do not need); and
// memory is read 6% slower by less than 90% of the blocks.
constexpr int64_t share_count(int64_t items, int64_t granules, int64_t blocks, int64_t filling) {
  const int64_t most =
      std::max<int64_t>(1, std::min<int64_t>(blocks, product_of({items, granules})));
  int64_t whole = std::min(std::max<int64_t>(1, items), most);
  while (items % whole != 0) --whole;
  // In hundredths of a block's time per granule.
  const int64_t memory = divide_up(items * granules, std::min(filling, most));
  const int64_t even = divide_up(items * (granules + (items >= most ? 1 : 0)), most);
  const int64_t of_whole = std::max((10 * whole < 9 * most ? 106 : 100) * memory,
                                    100 * (items / whole) * (granules + 1));
  const int64_t of_cut = 104 * std::max(memory, even) + 300;
  return of_whole <= of_cut ? whole : most;
}

// Granules per part, batch invariant. No std::max: it needs a constant's address, which device code lacks.
constexpr int own_part(int granules) {
  const auto each =
      static_cast<int>((static_cast<unsigned>(granules) + kMostOwnParts - 1) / kMostOwnParts);
  return each < kFewestOwnGranules ? kFewestOwnGranules : each;
}

// Returns the largest number of parts of an item with at most seqlen_kv keys, batch invariant.
constexpr int most_own_parts(int64_t seqlen_kv) {
  const int64_t parts = divide_up(divide_up(seqlen_kv, kGranule), kFewestOwnGranules);
  return static_cast<int>(std::clamp<int64_t>(parts, 1, kMostOwnParts));
}

// The slots of an item's partial results: one form for both ways to
// cut, so that code that reads many of them needs no branch in between.
struct Slots {
  int base, step, odd;

  constexpr int at(int part) const { return base + part * step + (part == 0 ? odd : 0); }
};

// An item's position on the list, and how it is cut. each: granules per part if batch invariant, otherwise
// positions per share. own_parts: the largest number for any item if batch invariant, otherwise 0.
struct Cut {
  int first, granules;  // of the item
  int item;             // its index among all items
  int each;
  int own_parts;

  constexpr int first_share() const {
    return static_cast<int>(static_cast<unsigned>(first) / static_cast<unsigned>(each));
  }
  constexpr int parts() const {
    if (granules == 0) return 0;
    if (own_parts > 0) {
      return static_cast<int>((static_cast<unsigned>(granules + each) - 1) /
                              static_cast<unsigned>(each));
    }
    const auto last = static_cast<unsigned>(first + granules - 1);
    return static_cast<int>(last / static_cast<unsigned>(each)) - first_share() + 1;
  }
  // Returns the slot of the partial result of the part that begins at `granule`
  // of the item and belongs to `share`. Different items never share a slot.
  constexpr int slot_at(int granule, int share) const {
    if (own_parts > 0) {
      return item * own_parts +
             static_cast<int>(static_cast<unsigned>(granule) / static_cast<unsigned>(each));
    }
    return granule == 0 ? 2 * share + 1 : 2 * share;
  }
  // Returns the slots of all parts, which begin at multiples of `each`, in consecutive shares.
  constexpr Slots slots() const {
    if (own_parts > 0) return {item * own_parts, 1, 0};
    return {2 * first_share(), 2, 1};
  }
};

// Slots per launch, for any lengths. items, seqlen_kv: upper bounds.
constexpr int64_t most_slots(int64_t items, int64_t seqlen_kv, int64_t shares,
                             bool batch_invariant) {
  if (!batch_invariant) return product_of({2, shares});
  return product_of({items, most_own_parts(seqlen_kv)});
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
