// Cuts the work of a launch by its lengths. This happens on the device: a plan knows only
// the largest sizes, and one captured launch serves all later lengths.
//
//   item    a work item, one sequence: the tiles of 64 keys that its queries see
//   list    the work list: all items, as many positions each as it costs
//   share   a range of positions on the list, for one block of each tile of rows
//   part    the part of an item in a share; at most one, but in the last layout
//
// The cheapest of three ways to lay the list out, by tiles of the busiest block:
//
//   whole   an item costs one position: nothing is cut, and a share has as many items as the others
//   equal   an item costs as many positions as there are shares for each, and its parts are equally long
//   even    an item costs its tiles and one for its end, and shares are equally long
//
// and a fourth for batch_invariant:
//
//   own     an item has as many equal parts as its own tiles ask for, and costs a position each
//
// constexpr: shared by kernels, plans and host tests.
#pragma once

#include <cstdint>

namespace flashcore::cuda::mla_sm90::latent {

enum class Layout : int32_t { whole, equal, even, own };

// In tiles: what the end of an item costs, and cuts into equal parts or at any place.
inline constexpr int kEndTiles = 1, kEqualCutTiles = 2, kEvenCutTiles = 7;
inline constexpr int64_t kMostPositions = 1 << 30;
// A part of an item of its own has a power of two of tiles, this one or more.
inline constexpr int kFewestOwnTiles = 16;

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
    const auto most =
        static_cast<int>(static_cast<unsigned>(shares) / static_cast<unsigned>(items));
    const int each = quotient_up(longest, most), equal = each + kEndTiles + kEqualCutTiles;
    // More parts of so many tiles would only be more to join.
    if (equal < whole && equal <= even) return {Layout::equal, 1, quotient_up(longest, each)};
  }
  if (whole <= even) return {Layout::whole, items_each, 1};
  return {Layout::even, even_each, 1};
}

constexpr int least(int a, int b) { return a < b ? a : b; }

// The tiles of a part, if an item is cut by its own tiles alone. A part costs its end and what the second kernel reads,
// and a long one costs blocks that wait for it: both grow alike with the square root of the tiles.
constexpr int own_part_tiles(int tiles) {
  int each = kFewestOwnTiles;
  while (each * each < 8 * tiles) each *= 2;
  return each;
}
constexpr int own_parts(int tiles) { return quotient_up(tiles, own_part_tiles(tiles)); }
// Returns the most parts of any item of at most so many tiles: shorter ones may have more, of half as many tiles.
constexpr int most_own_parts(int tiles) {
  const int each = own_part_tiles(tiles), all = quotient_up(tiles, each), half = each / 2;
  return each > kFewestOwnTiles && half / 8 > all ? half / 8 : all;
}
// The layout for items of `parts` parts in all.
constexpr Cutting own_cutting(int parts, int shares) {
  return {Layout::own, parts == 0 ? 1 : quotient_up(parts, shares), 1};
}

// The cost of an item: its positions on the list.
constexpr int item_cost(const Cutting& cut, int tiles) {
  if (tiles == 0) return 0;
  if (cut.layout == Layout::own) return own_parts(tiles);
  if (cut.layout == Layout::even) return tiles + kEndTiles;
  return cut.layout == Layout::equal ? least(cut.parts, tiles) : 1;
}

// Tiles [begin, end) of an item; none if it is not in the share. slot: of its partial
// result; -1: it is the whole item.
struct Part {
  int begin, end, slot;

  constexpr bool empty() const { return end <= begin; }
};

// Returns a share's part of the item that begins at position `first` of the list: its first, or nth.
constexpr Part part_of(const Cutting& cut, int first, int tiles, int share, int nth = 0) {
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
  const int64_t part = (begin < 0 ? 0 : begin) + nth;
  if (part >= parts || part >= end) return {0, 0, -1};
  // of * tiles / parts in 32 bits: a GPU divides 64 bits slowly.
  const auto cut_at = [all = static_cast<unsigned>(tiles),
                       count = static_cast<unsigned>(parts)](int64_t at) {
    const auto of = static_cast<unsigned>(at);
    return static_cast<int>(of * (all / count) + of * (all % count) / count);
  };
  return {cut_at(part), cut_at(part + 1), parts == 1 ? -1 : static_cast<int>(first + part)};
}

// The parts of an item in a share.
constexpr int part_count(const Cutting& cut, int first, int tiles, int share) {
  if (cut.layout != Layout::own) return part_of(cut, first, tiles, share).empty() ? 0 : 1;
  const int64_t begin = int64_t{share} * cut.each - first, end = begin + cut.each;
  const int parts = item_cost(cut, tiles);
  const int64_t count = (end < parts ? end : parts) - (begin < 0 ? 0 : begin);
  return count < 0 ? 0 : static_cast<int>(count);
}

// The partial results of an item: 0 parts if it has no key, 1 if it is not cut.
struct Parts {
  int count, base, step, odd;

  constexpr int slot(int part) const { return base + part * step + (part == 0 ? odd : 0); }
};

constexpr Parts parts_of(const Cutting& cut, int first, int tiles) {
  if (tiles == 0) return {0, 0, 0, 0};
  if (cut.layout == Layout::whole) return {1, 0, 0, 0};
  if (cut.layout != Layout::even) return {item_cost(cut, tiles), first, 1, 0};
  const auto each = static_cast<unsigned>(cut.each);
  const auto first_share = static_cast<int>(static_cast<unsigned>(first) / each);
  const auto last_share = static_cast<int>(static_cast<unsigned>(first + tiles - 1) / each);
  return {last_share - first_share + 1, 2 * first_share, 2, 1};
}

// For a launch of so many items of at most `tiles` tiles: the slots for partial results of each tile of rows, and the
// parts of a share.
constexpr int64_t slot_count(int64_t items, int tiles, int shares, bool own) {
  return own ? items * most_own_parts(tiles) : 2 * int64_t{shares};
}
constexpr int64_t most_units(int64_t items, int tiles, int shares, bool own) {
  const int64_t each = own ? (items * most_own_parts(tiles) + shares - 1) / shares : 1;
  return each > items ? each : items;
}

}  // namespace flashcore::cuda::mla_sm90::latent
