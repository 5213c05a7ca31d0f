// Bank conflicts, counted by line: shared memory delivers one 4-byte word of each of 32 banks a
// cycle, and an access whose lanes want two words of one bank takes two.
//
// An instruction of 32 lanes is found again from the accesses of single lanes: the n-th access of
// each lane at one line belong together. Wider accesses take several cycles anyway, 16 bytes four.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "engine/machine.hpp"

namespace flashcore::sim {

struct Conflicts {
  uint64_t cycles = 0;  // that conflict-free accesses would take
  uint64_t extra = 0;
};

// One cycle's worth: a word of each lane.
void count_phase(const std::array<uint32_t, kLanes>& addresses, Site site);
// By one lane, 4, 8 or 16 bytes (narrower ones count as 4).
void count_lane_access(const Thread& thread, uint32_t address, uint32_t bytes, Site site);

// By line, since the last call. Counted only with Policy::count_bank_conflicts.
std::map<uint64_t, Conflicts> take_bank_conflicts();

}  // namespace flashcore::sim
