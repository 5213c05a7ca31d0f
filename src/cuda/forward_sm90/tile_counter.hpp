// Hands out tiles in order to whichever block is free: a counter that needs no reset between
// launches.
//
// The word holds {name of the launch's plan, tiles handed out}. A word with another name, whatever
// it is, counts as zero, so memory that nobody cleared will do. Every block asks until it is told
// that there is nothing left; as many times are asked as there are tiles (each block's first tile
// is its own number), so the last asker knows itself and leaves zero for the plan's next launch.
// Launches that run at the same time must not share the word: it lies in the run's workspace.
#pragma once

#include <cstdint>

namespace flashcore::cuda::forward_sm90 {

struct CounterStep {
  unsigned long long stored;
  uint32_t handed_out;  // before this step
};

// `asked`: how often a launch asks in all.
constexpr CounterStep step_counter(unsigned long long word, uint32_t name, uint32_t asked) {
  const uint32_t before =
      static_cast<uint32_t>(word >> 32) == name ? static_cast<uint32_t>(word) : 0;
  const uint32_t after = before + 1 == asked ? 0 : before + 1;
  return {static_cast<unsigned long long>(name) << 32 | after, before};
}

#ifdef __CUDACC__
// The number of the next tile; at or past `tiles`: none is left.
__device__ inline uint32_t take_tile(unsigned long long* counter, uint32_t name, uint32_t tiles,
                                     uint32_t blocks) {
  unsigned long long word = *static_cast<volatile unsigned long long*>(counter);
  while (true) {
    const CounterStep step = step_counter(word, name, tiles);
    const unsigned long long found = atomicCAS(counter, word, step.stored);
    if (found == word) return blocks + step.handed_out;
    word = found;
  }
}
#endif

}  // namespace flashcore::cuda::forward_sm90
