// Bank conflicts, counted by line: shared memory delivers one 4-byte word per cycle from
// each of 32 banks, and an access whose lanes need two words of one bank takes two cycles.
//
// An instruction of 32 lanes is reconstructed from the accesses of single lanes: the n-th accesses of
// all lanes at one line belong together. Wider accesses take several cycles anyway, 16 bytes four.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "engine/machine.hpp"

namespace flashcore::sim {

struct Conflicts {
  uint64_t cycles = 0;  // of conflict-free accesses
  uint64_t extra = 0;
};

// Counts one cycle: one word per lane.
void count_phase(const std::array<uint32_t, kLanes>& addresses, Site site);
// Counts one lane's access of 4, 8 or 16 bytes (narrower ones count as 4).
void count_lane_access(const Thread& thread, uint32_t address, uint32_t bytes, Site site);

// Returns the counts per line since the last call. They require Policy::count_bank_conflicts.
std::map<uint64_t, Conflicts> take_bank_conflicts();

}  // namespace flashcore::sim
