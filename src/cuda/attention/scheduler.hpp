// The order in which persistent blocks take query tiles: longest first, so that the last wave is
// made of the shortest tiles.
//
//   block b of G takes the tiles number b, b + G, b + 2G, ... of this order:
//
//   section 0: (last query tile of heads 0..H'-1), (last but one of heads 0..H'-1), ...
//   section 1: the same for the next H' heads, ...
//
// With a causal mask a later query tile sees more keys. A section is a run of heads whose keys and
// values stay in L2 together; one section of all heads gives the strict longest-first order.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

struct QueryTile {
  int64_t batch_head;
  int q_tile;
};

struct TileOrder {
  int64_t batch_heads;
  int q_tiles;
  int64_t section_heads;  // 1 .. batch_heads

  constexpr int64_t size() const { return batch_heads * q_tiles; }

  // Tile number `index` of the order, 0 <= index < size().
  constexpr QueryTile at(int64_t index) const {
    const int64_t section = index / (section_heads * q_tiles);
    const int64_t first_head = section * section_heads;
    const int64_t left = batch_heads - first_head;
    const int64_t heads = left < section_heads ? left : section_heads;
    const int64_t within = index - section * section_heads * q_tiles;
    return {first_head + within % heads, q_tiles - 1 - static_cast<int>(within / heads)};
  }
};

// How many heads make a section: as many as have their keys and values in `l2_bytes` together.
constexpr int64_t heads_in_l2(int64_t batch_heads, int64_t bytes_per_head, int64_t l2_bytes) {
  const int64_t fit = bytes_per_head > 0 ? l2_bytes / bytes_per_head : batch_heads;
  return fit < 1 ? 1 : (fit < batch_heads ? fit : (batch_heads < 1 ? 1 : batch_heads));
}

}  // namespace flashcore::cuda::attention
