// A run's choices where the hardware gives no guarantee.
#pragma once

#include <cstdint>

namespace flashcore::sim {

// When the effect of an asynchronous operation appears: when
// nothing else can run, at once, or at any moment between.
enum class Completion { late, early, random };

struct Policy {
  Completion completion = Completion::late;
  uint64_t seed = 0;        // 0: blocks, warps, lanes and completions in order; otherwise shuffled
  uint8_t poison = 0xff;    // bytes of unwritten memory; 0xff is NaN in every type
  int resident_blocks = 2;  // at once, unless clusters need more
  bool count_bank_conflicts = false;
};

}  // namespace flashcore::sim
