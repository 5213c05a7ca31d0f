// The start and end of a machine's parts.
#pragma once

#include <memory>

#include "engine/machine.hpp"

namespace flashcore::sim {

std::unique_ptr<Cluster> make_cluster(Grid& grid, uint64_t number);

// Returns a new component of the cluster's clocks.
Agent new_agent(Cluster& cluster);

// Reports what a thread, or a block whose threads have all exited, has left pending.
void check_end(Thread& thread);
void check_end(Block& block);

}  // namespace flashcore::sim
