// How a launch cuts what its lengths ask for. The device decides: a plan knows the largest sizes
// only, and one captured launch serves every later length.
//
//   item      an entry's keys with one key/value head: a whole number of granules
//   line      the granules of all items, one after the other, heads within entries
//   share i   granules [i, i + 1) * ceil(line / shares), of the blocks of row `i` of the grid
//   column    of the grid: the tile of rows; blocks of a row read the same keys at the same time
//
// A unit is what a share has of an item. So a share begins and ends with a unit that may be a part,
// and all between are whole: two partial results a share, whatever the batch is.
//
// Batch invariant, an item is cut by its own keys alone, and a part belongs to the share that has
// its first granule. constexpr: kernels, plans and host tests share it.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/work.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::decode::kGranule, attention::decode::divide_up, attention::decode::SeenKeys;

inline constexpr int kMostEntries = 2048;     // of a batch: their list is in shared memory
inline constexpr int kMostOwnParts = 16;      // of an item, batch invariant
inline constexpr int kFewestOwnGranules = 8;  // of a part, batch invariant
inline constexpr int64_t kMostGranules = 1 << 30;

// Granules of a part, batch invariant. Not by std::max: device code has no address of a constant.
constexpr int own_part(int granules) {
  const auto each =
      static_cast<int>((static_cast<unsigned>(granules) + kMostOwnParts - 1) / kMostOwnParts);
  return each < kFewestOwnGranules ? kFewestOwnGranules : each;
}

// Where the partial results are of an item's parts: one form for both ways to cut, so that what reads
// many of them asks nothing in between.
struct Slots {
  int base, first, step, odd;

  constexpr int at(int part) const {
    const auto place = static_cast<unsigned>(first + part * step);
    return base + static_cast<int>(place / kFewestOwnGranules) + (part == 0 ? odd : 0);
  }
};

// Where an item lies in the line, and how it is cut. each: granules of a part, batch invariant, or
// of a share.
struct Cut {
  int first, granules;  // of the item
  int item;             // its index, of all
  int each;
  bool batch_invariant;

  constexpr int first_share() const {
    return static_cast<int>(static_cast<unsigned>(first) / static_cast<unsigned>(each));
  }
  constexpr int parts() const {
    if (granules == 0) return 0;
    if (batch_invariant) {
      return static_cast<int>((static_cast<unsigned>(granules + each) - 1) /
                              static_cast<unsigned>(each));
    }
    const auto last = static_cast<unsigned>(first + granules - 1);
    return static_cast<int>(last / static_cast<unsigned>(each)) - first_share() + 1;
  }
  // Where the partial result is of the part that begins at a granule of the item and belongs to a
  // share. No two of different items have the same.
  constexpr int slot_at(int granule, int share) const {
    if (batch_invariant) {
      return item + static_cast<int>(static_cast<unsigned>(first + granule) / kFewestOwnGranules);
    }
    return granule == 0 ? 2 * share + 1 : 2 * share;
  }
  // Of all parts, which begin at multiples of `each`, in shares that follow each other.
  constexpr Slots slots() const {
    if (batch_invariant) return {item, first, each, 0};
    return {2 * first_share(), 0, 2 * kFewestOwnGranules, 1};
  }
};

// Slots of a launch, whatever the lengths are. items, seqlen_kv: at most.
constexpr int64_t most_slots(int64_t items, int64_t seqlen_kv, int64_t shares,
                             bool batch_invariant) {
  if (!batch_invariant) return product_of({2, shares});
  return sum_of(
      {items, product_of({items, divide_up(seqlen_kv, kGranule)}) / kFewestOwnGranules, 1});
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
