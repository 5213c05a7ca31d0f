// The order in which a launch takes its tiles of queries.
//
// Plainly, the tiles of a head follow each other, so that blocks which run together share its keys.
// Longest first, for causal masks, where a later tile of queries sees more keys and the last wave is
// to be made of the shortest tiles:
//
//   section 0: (last query tile of heads 0..H'-1), (last but one of heads 0..H'-1), ...
//   section 1: the same for the next H' heads, ...
//
// A section is a run of heads whose keys and values stay in L2 together; one section of all heads
// gives the strict longest-first order. constexpr: kernels and host tests use the same functions.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

// n / d, at once where that is 0, as it is for most of what a launch asks: a division takes long.
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

  // What a number is divided by: the tiles of a head or of a section, the heads of a section.
  enum class By { tiles, section, heads };

  // Tile number `index` of the order, 0 <= index < size().
  constexpr Place at(uint32_t index) const {
    return at(index, [](By, uint32_t n, uint32_t d) { return quotient(n, d); });
  }

  // The same with `divide(by, n, d)` for n / d.
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

// How many heads make a section, at an entry's own number of keys: those whose keys and values
// together are `section_rows` rows, with all query heads that read them.
constexpr uint32_t section_heads(uint32_t section_rows, uint32_t keys, uint32_t group,
                                 uint32_t heads) {
  const uint64_t fit = uint64_t{section_rows / (keys > 0 ? keys : 1)} * group;
  const uint64_t most = fit < heads ? fit : heads;
  return most > 0 ? static_cast<uint32_t>(most) : 1;
}

}  // namespace flashcore::cuda::attention
