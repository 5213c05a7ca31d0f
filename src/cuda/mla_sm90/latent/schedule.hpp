// Cuts the work of a launch by its lengths. This happens on the device: a plan knows only
// the largest sizes, and one captured launch serves all later lengths.
//
//   item    a work item, one sequence: the tiles of 64 keys that its queries see
//   list    the work list: all items, as many positions each as it costs
//   share   a range of positions on the list, for one block of each tile of rows
//   part    the part of an item in a share; at most one
//
// The cheapest of three ways to lay the list out, by tiles of the busiest block:
//
//   whole   an item costs one position: nothing is cut, and a share has as many items as the others
//   equal   an item costs as many positions as there are shares for each, and its parts are equally long
//   even    an item costs its tiles and one for its end, and shares are equally long
//
// constexpr: shared by kernels, plans and host tests.
#pragma once

#include <cstdint>

namespace flashcore::cuda::mla_sm90::latent {

enum class Layout : int32_t { whole, equal, even };

// In tiles: what the end of an item costs, and cuts into equal parts or at any place.
inline constexpr int kEndTiles = 1, kEqualCutTiles = 2, kEvenCutTiles = 7;
inline constexpr int64_t kMostPositions = 1 << 30;

// How a launch's work list is laid out. each: positions of a share.
struct Cutting {
  Layout layout;
  int each;
  int parts;  // of an item at most, if they are equal
};

constexpr int quotient_up(int a, int b) {
  return static_cast<int>((static_cast<unsigned>(a) + static_cast<unsigned>(b) - 1) /
                          static_cast<unsigned>(b));
}

// Chooses the layout for `items` work items of `tiles` tiles in all, the longest of `longest` tiles.
constexpr Cutting cutting(int tiles, int items, int longest, int shares) {
  if (items == 0) return {Layout::whole, 1, 1};
  const int items_each = quotient_up(items, shares);
  const int64_t whole = int64_t{items_each} * (longest + kEndTiles);
  const int even_each = quotient_up(tiles + items * kEndTiles, shares);
  const int even = even_each + kEvenCutTiles;
  if (items <= shares) {
    const auto parts =
        static_cast<int>(static_cast<unsigned>(shares) / static_cast<unsigned>(items));
    const int equal = quotient_up(longest, parts) + kEndTiles + kEqualCutTiles;
    if (equal < whole && equal <= even) return {Layout::equal, 1, parts};
  }
  if (whole <= even) return {Layout::whole, items_each, 1};
  return {Layout::even, even_each, 1};
}

constexpr int least(int a, int b) { return a < b ? a : b; }

// The cost of an item: its positions on the list.
constexpr int item_cost(const Cutting& cut, int tiles) {
  if (tiles == 0) return 0;
  if (cut.layout == Layout::even) return tiles + kEndTiles;
  return cut.layout == Layout::equal ? least(cut.parts, tiles) : 1;
}

// Tiles [begin, end) of an item; none if it is not in the share. slot: of its partial
// result; -1: it is the whole item.
struct Part {
  int begin, end, slot;

  constexpr bool empty() const { return end <= begin; }
};

// Returns a share's part of the item that begins at position `first` of the list.
constexpr Part part_of(const Cutting& cut, int first, int tiles, int share) {
  if (tiles == 0) return {0, 0, -1};
  const int64_t begin = int64_t{share} * cut.each - first;
  const int64_t end = begin + cut.each;
  if (cut.layout == Layout::whole)
    return begin <= 0 && end > 0 ? Part{0, tiles, -1} : Part{0, 0, -1};
  if (cut.layout == Layout::even) {
    const int from = begin < 0 ? 0 : static_cast<int>(begin < tiles ? begin : tiles);
    const int to = end < 0 ? 0 : static_cast<int>(end < tiles ? end : tiles);
    const bool whole = from == 0 && to == tiles;
    return {from, to, whole ? -1 : 2 * share + (from == 0 ? 1 : 0)};
  }
  const int parts = item_cost(cut, tiles);
  if (begin < 0 || begin >= parts) return {0, 0, -1};
  const auto cut_at = [&](int64_t part) {
    return static_cast<int>(static_cast<uint64_t>(part) * static_cast<unsigned>(tiles) /
                            static_cast<unsigned>(parts));
  };
  return {cut_at(begin), cut_at(begin + 1), parts == 1 ? -1 : share};
}

// The partial results of an item: 0 parts if it has no key, 1 if it is not cut.
struct Parts {
  int count, base, step, odd;

  constexpr int slot(int part) const { return base + part * step + (part == 0 ? odd : 0); }
};

constexpr Parts parts_of(const Cutting& cut, int first, int tiles) {
  if (tiles == 0) return {0, 0, 0, 0};
  if (cut.layout == Layout::whole) return {1, 0, 0, 0};
  if (cut.layout == Layout::equal) return {item_cost(cut, tiles), first, 1, 0};
  const auto each = static_cast<unsigned>(cut.each);
  const auto first_share = static_cast<int>(static_cast<unsigned>(first) / each);
  const auto last_share = static_cast<int>(static_cast<unsigned>(first + tiles - 1) / each);
  return {last_share - first_share + 1, 2 * first_share, 2, 1};
}

// The slots for partial results of a launch, for each tile of rows.
constexpr int slot_count(int shares) { return 2 * shares; }

}  // namespace flashcore::cuda::mla_sm90::latent
