// The order of a launch's query tiles.
//
// The tiles of a head are consecutive by default, so that blocks that run at the
// same time share its keys. For causal masks, the order is longest first: a later
// query tile sees more keys, and the last wave should consist of the shortest tiles:
//
//   section 0: (last query tile of heads 0..H'-1), (last but one of heads 0..H'-1), ...
//   section 1: likewise for the next H' heads, ...
//
// A section is a range of heads whose keys and values fit L2 together; a single section of all
// heads gives the strict longest-first order. constexpr: shared by kernels and host tests.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

// Returns n / d; 0 is found without a division, which is slow, and is the usual case in a launch.
constexpr uint32_t quotient(uint32_t n, uint32_t d) { return n < d ? 0 : n / d; }

struct TileOrder {
  uint32_t batch_heads;
  uint32_t q_tiles;
  uint32_t section_heads;  // 1 .. batch_heads
  bool longest_first;

  struct Place {
    uint32_t batch_head, q_tile;
  };

  constexpr uint32_t size() const { return batch_heads * q_tiles; }

  // Names a divisor: the tiles of a head or of a section, the heads of a section.
  enum class By { tiles, section, heads };

  // Returns tile number `index` of the order, 0 <= index < size().
  constexpr Place at(uint32_t index) const {
    return at(index, [](By, uint32_t n, uint32_t d) { return quotient(n, d); });
  }

  // Returns the tile with `divide(by, n, d)` for n / d.
  template <class Divide>
  constexpr Place at(uint32_t index, Divide divide) const {
    if (!longest_first) {
      const uint32_t head = divide(By::tiles, index, q_tiles);
      return {head, index - head * q_tiles};
    }
    const uint32_t section_tiles = section_heads * q_tiles;
    const uint32_t section = divide(By::section, index, section_tiles);
    const uint32_t within = index - section * section_tiles;
    const uint32_t left = batch_heads - section * section_heads;
    const uint32_t heads = section_heads < left ? section_heads : left;
    const uint32_t rank = divide(By::heads, within, heads);
    return {section * section_heads + (within - rank * heads), q_tiles - 1 - rank};
  }
};

// Returns how many heads make a section for sequences of `keys` keys: those whose keys
// and values are `section_rows` rows in total, with all query heads that read them.
constexpr uint32_t section_heads(uint32_t section_rows, uint32_t keys, uint32_t group,
                                 uint32_t heads) {
  const uint64_t fit = uint64_t{section_rows / (keys > 0 ? keys : 1)} * group;
  const uint64_t most = fit < heads ? fit : heads;
  return most > 0 ? static_cast<uint32_t>(most) : 1;
}

}  // namespace flashcore::cuda::attention
