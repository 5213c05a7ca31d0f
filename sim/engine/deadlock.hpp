// The report of a deadlock: which threads wait where, and for what.
#pragma once

#include <vector>

#include "engine/machine.hpp"

namespace flashcore::sim {

void report_deadlock(const std::vector<Warp*>& warps);

}  // namespace flashcore::sim
