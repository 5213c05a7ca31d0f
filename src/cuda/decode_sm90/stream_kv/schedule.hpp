// How a launch cuts what its lengths ask for. The device decides: a plan knows the largest sizes
// only, and one captured launch serves every later length.
//
//   item      an entry's keys with one key/value head: a whole number of granules
//   line      the granules of all items, one after the other, heads within entries. Where there are
//             more items than shares, places follow each item's granules, for the time that its end
//             takes: otherwise a share of many short items would end last
//   share i   places [i, i + 1) * ceil(line / shares), of the blocks of row `i` of the grid
//   column    of the grid: the tile of rows; blocks of a row read the same keys at the same time
//
// A unit is what a share has of an item. So a share begins and ends with a unit that may be a part,
// and all between are whole: two partial results a share, whatever the batch is.
//
// Batch invariant, an item is cut by its own keys alone, and a part belongs to the share that has
// its first granule. constexpr: kernels, plans and host tests share it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/decode/work.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::decode::kGranule, attention::decode::divide_up, attention::decode::SeenKeys;

inline constexpr int kMostEntries = 2048;          // of a batch: their list is in shared memory
inline constexpr int kMostOwnParts = 16;           // of an item, batch invariant
inline constexpr int kFewestOwnGranules = 8;       // of a part, batch invariant
inline constexpr int64_t kMostGranules = 1 << 29;  // the line has twice as many places at most
inline constexpr int64_t kMostJoinRows = 1 << 26;  // whether they exist or not

// Places of an item in the line. end: those that its end takes.
constexpr int item_places(int granules, int end) { return granules == 0 ? 0 : granules + end; }

// Shares of items of so many granules each, on so many blocks, of which `filling` read as fast as memory does: as many as
// blocks, or fewer that have whole items. As measured on an H200 (docs/decode.md), cuts cost 4% (blocks have a unit
// more) and as long as a block takes for three granules (the second kernel, which whole items do not need); and
// memory is read 6% slower by less than 90% of the blocks.
constexpr int64_t share_count(int64_t items, int64_t granules, int64_t blocks, int64_t filling) {
  const int64_t most =
      std::max<int64_t>(1, std::min<int64_t>(blocks, product_of({items, granules})));
  int64_t whole = std::min(std::max<int64_t>(1, items), most);
  while (items % whole != 0) --whole;
  // In hundredths of a block's time for a granule.
  const int64_t memory = divide_up(items * granules, std::min(filling, most));
  const int64_t even = divide_up(items * (granules + (items >= most ? 1 : 0)), most);
  const int64_t of_whole = std::max((10 * whole < 9 * most ? 106 : 100) * memory,
                                    100 * (items / whole) * (granules + 1));
  const int64_t of_cut = 104 * std::max(memory, even) + 300;
  return of_whole <= of_cut ? whole : most;
}

// Granules of a part, batch invariant. Not by std::max: device code has no address of a constant.
constexpr int own_part(int granules) {
  const auto each =
      static_cast<int>((static_cast<unsigned>(granules) + kMostOwnParts - 1) / kMostOwnParts);
  return each < kFewestOwnGranules ? kFewestOwnGranules : each;
}

// Parts of an item of at most so many keys, batch invariant.
constexpr int most_own_parts(int64_t seqlen_kv) {
  const int64_t parts = divide_up(divide_up(seqlen_kv, kGranule), kFewestOwnGranules);
  return static_cast<int>(std::clamp<int64_t>(parts, 1, kMostOwnParts));
}

// Where the partial results are of an item's parts: one form for both ways to cut, so that what reads
// many of them asks nothing in between.
struct Slots {
  int base, step, odd;

  constexpr int at(int part) const { return base + part * step + (part == 0 ? odd : 0); }
};

// Where an item lies in the line, and how it is cut. each: granules of a part, batch invariant, or
// places of a share. own_parts: of any item, at most, batch invariant; otherwise 0.
struct Cut {
  int first, granules;  // of the item
  int item;             // its index, of all
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
  // Where the partial result is of the part that begins at a granule of the item and belongs to a
  // share. No two of different items have the same.
  constexpr int slot_at(int granule, int share) const {
    if (own_parts > 0) {
      return item * own_parts +
             static_cast<int>(static_cast<unsigned>(granule) / static_cast<unsigned>(each));
    }
    return granule == 0 ? 2 * share + 1 : 2 * share;
  }
  // Of all parts, which begin at multiples of `each`, in shares that follow each other.
  constexpr Slots slots() const {
    if (own_parts > 0) return {item * own_parts, 1, 0};
    return {2 * first_share(), 2, 1};
  }
};

// Slots of a launch, whatever the lengths are. items, seqlen_kv: at most.
constexpr int64_t most_slots(int64_t items, int64_t seqlen_kv, int64_t shares,
                             bool batch_invariant) {
  if (!batch_invariant) return product_of({2, shares});
  return product_of({items, most_own_parts(seqlen_kv)});
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
