// The report of a deadlock: who waits where, and for whom.
#pragma once

#include <vector>

#include "engine/machine.hpp"

namespace flashcore::sim {

void report_deadlock(const std::vector<Warp*>& warps);

}  // namespace flashcore::sim
