// Hands out tiles in order to whichever block is free: a counter that needs no reset between
// launches, and one addition in memory for each tile.
//
//   in memory    | name of the launch's plan, 64 bits | tiles handed out, 32 bits |
//
// Before a block asks for the first time it sees to it that the name is there, which no other plan
// has. Memory that nobody cleared will do: whoever finds anything else first marks it as being
// claimed, clears the count and then writes the name; others wait for that. Every block asks until
// it is told that there is nothing left; as many times are asked as there are tiles (each block's
// first tile is its own number), so the last asker knows itself and leaves {name, 0} for the plan's
// next launch. Launches that run at the same time must not share the memory: it lies in the run's
// workspace.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include "cuda/ptx/load_acquire.cuh"
#endif

namespace flashcore::cuda::forward_sm90 {

struct TileCounter {
  uint64_t name;  // even: the odd number after it is the mark of a claim
  uint32_t tiles;

  constexpr uint64_t being_claimed() const { return name | 1; }
  // Whether an asker that found `handed_out` and added 1 must leave 0.
  constexpr bool is_last(uint32_t handed_out) const { return handed_out + 1 == tiles; }
};

#ifdef __CUDACC__
__device__ inline unsigned int* count_after(unsigned long long* name) {
  return reinterpret_cast<unsigned int*>(name + 1);
}

// Before the first ask of a block.
__device__ inline void claim(unsigned long long* name, const TileCounter& counter) {
  if (ptx::load_acquire(name) == counter.name) return;  // as after the plan's first launch
  while (true) {
    const unsigned long long found = atomicCAS(name, 0ULL, 0ULL);  // reads
    if (found == counter.name) break;
    if (found != counter.being_claimed() &&
        atomicCAS(name, found, counter.being_claimed()) == found) {
      atomicExch(count_after(name), 0U);
      __threadfence();  // before the name
      atomicExch(name, counter.name);
      return;
    }
  }
  __threadfence();  // after the name
}

// What one asker is handed, `blocks` tiles being handed out by themselves. At or past
// counter.tiles: none is left.
__device__ inline uint32_t ask(unsigned long long* name, const TileCounter& counter,
                               uint32_t blocks) {
  const uint32_t handed_out = atomicAdd(count_after(name), 1U);
  if (counter.is_last(handed_out)) atomicExch(count_after(name), 0U);
  return blocks + handed_out;
}
#endif

}  // namespace flashcore::cuda::forward_sm90
