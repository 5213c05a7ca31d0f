// Hands out tiles in order to whichever block is free. The counter
// needs no reset between launches, and one atomic addition per tile.
//
//   in memory    | name of the launch's plan, 64 bits | tiles handed out, 32 | blocks done, 32 |
//
// Before a block asks for its first tile, it makes sure that the plan's name, which is
// unique, is in memory. The memory need not be cleared: the first block that finds something
// else marks it as claimed, clears the counts and then writes the name, and the others wait
// for that. A block that finds no tile left exits, and the last one to exit sets {name, 0,
// 0} for the plan's next launch, so the number of tiles need not be known. Launches that run
// at the same time must not share the memory: it belongs to the run's workspace.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include "cuda/ptx/load_acquire.cuh"
#endif

namespace flashcore::cuda::forward_sm90::throughput {

struct TileCounter {
  static constexpr uint64_t kOneTile = 1, kOneLeft = uint64_t{1} << 32;  // units of the two counts

  uint64_t name;  // even: the odd number after it marks a claim
  uint32_t blocks;

  constexpr uint64_t being_claimed() const { return name | 1; }
  // Returns the tile for a block that found `counts`; each block's first tile is its own index.
  constexpr uint32_t tile_after(uint64_t counts) const {
    return blocks + static_cast<uint32_t>(counts);
  }
  // Returns whether a block that found `counts` at its exit is the last.
  constexpr bool is_last(uint64_t counts) const { return (counts >> 32) + 1 == blocks; }
};

#ifdef __CUDACC__
__device__ inline unsigned long long* counts_after(unsigned long long* name) { return name + 1; }

// Called before a block's first ask().
__device__ inline void claim(unsigned long long* name, const TileCounter& counter) {
  if (ptx::load_acquire(name) == counter.name) return;  // always so after the plan's first launch
  while (true) {
    const unsigned long long found = atomicCAS(name, 0ULL, 0ULL);  // reads
    if (found == counter.name) break;
    if (found != counter.being_claimed() &&
        atomicCAS(name, found, counter.being_claimed()) == found) {
      atomicExch(counts_after(name), 0ULL);
      __threadfence();  // before the name
      atomicExch(name, counter.name);
      return;
    }
  }
  __threadfence();  // after the name
}

// Returns the caller's next tile, which may be past the last.
__device__ inline uint32_t ask(unsigned long long* name, const TileCounter& counter) {
  return counter.tile_after(atomicAdd(counts_after(name), TileCounter::kOneTile));
}

// Called after a block's last ask().
__device__ inline void leave(unsigned long long* name, const TileCounter& counter) {
  if (counter.is_last(atomicAdd(counts_after(name), TileCounter::kOneLeft))) {
    atomicExch(counts_after(name), 0ULL);
  }
}
#endif

}  // namespace flashcore::cuda::forward_sm90::throughput
