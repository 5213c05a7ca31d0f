// Hands out tiles in order to whichever block is free: a counter that needs no reset between
// launches, and one addition in memory for each tile.
//
//   the word    | name of the launch's plan | tiles handed out |     32 bits each
//
// Before a block asks for the first time it sees to it that the word carries the name: a word with
// another one, whatever it is, becomes {name, 0}. So memory that nobody cleared will do. Every
// block asks until it is told that there is nothing left; as many times are asked as there are
// tiles (each block's first tile is its own number), so the last asker knows itself and leaves
// {name, 0} for the plan's next launch. Launches that run at the same time must not share the word:
// it lies in the run's workspace.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_sm90 {

struct TileCounter {
  uint32_t name;
  uint32_t tiles;

  constexpr uint64_t zero() const { return uint64_t{name} << 32; }
  constexpr bool is_ours(uint64_t word) const { return static_cast<uint32_t>(word >> 32) == name; }
  // What an asker that found `word` and added 1 was handed, and whether it must leave zero().
  static constexpr uint32_t handed_out(uint64_t word) { return static_cast<uint32_t>(word); }
  constexpr bool is_last(uint32_t handed_out) const { return handed_out + 1 == tiles; }
};

#ifdef __CUDACC__
// Before the first ask of a block.
__device__ inline void claim(unsigned long long* word, const TileCounter& counter) {
  unsigned long long found = *static_cast<volatile unsigned long long*>(word);
  while (!counter.is_ours(found)) {
    const unsigned long long before = atomicCAS(word, found, counter.zero());
    if (before == found) return;
    found = before;
  }
}

// What one asker is handed, `blocks` tiles being handed out by themselves. At or past
// counter.tiles: none is left.
__device__ inline uint32_t ask(unsigned long long* word, const TileCounter& counter,
                               uint32_t blocks) {
  const uint32_t handed_out = TileCounter::handed_out(atomicAdd(word, 1ULL));
  if (counter.is_last(handed_out)) atomicExch(word, counter.zero());
  return blocks + handed_out;
}
#endif

}  // namespace flashcore::cuda::forward_sm90
