// Programmatic dependent launch: a grid that starts while the previous one still runs.
#pragma once

#include "engine/machine.hpp"

namespace flashcore::sim {

// griddepcontrol.launch_dependents and griddepcontrol.wait.
void launch_dependents();
void wait_for_earlier_grid(Site site);

// Returns whether the first blocks of a grid may start.
bool may_begin(Grid& grid, Grid& earlier);

void on_block_end(Block& block);
void on_cluster_end(Grid& grid);

}  // namespace flashcore::sim
