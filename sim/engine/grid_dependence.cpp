#include "engine/grid_dependence.hpp"

#include "engine/global_order.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

void let_go(Block& block) {
  if (block.launched_dependents) return;
  block.launched_dependents = true;
  ++block.cluster->grid->blocks_that_let_go;
}

}  // namespace

void launch_dependents() { let_go(own_block()); }

void wait_for_earlier_grid(Site site) {
  Thread& thread = self();
  thread.block->waited_for_grid = true;
  Grid* const earlier = thread.block->cluster->grid->earlier;
  if (earlier != nullptr && !earlier->is_complete()) {
    earlier->waiting.push_back(&thread);
    thread.waiting = {"griddepcontrol.wait", site};
    thread.warp->ready &= ~(1u << thread.lane);
    leave();
  }
  if (thread.block->cluster->grid->number > 0) order_after_earlier_grids(thread);
}

bool may_begin(Grid& grid, Grid& earlier) {
  if (earlier.is_complete()) return true;
  if (!grid.starts_early) return false;
  grid.earlier = &earlier;
  const uint64_t blocks = earlier.clusters * static_cast<uint64_t>(earlier.cluster_blocks);
  return earlier.blocks_that_let_go == blocks;
}

void on_block_end(Block& block) { let_go(block); }

void on_cluster_end(Grid& grid) {
  ++grid.complete_clusters;
  if (!grid.is_complete()) return;
  for (Thread* thread : grid.waiting) wake(*thread);
  grid.waiting.clear();
}

}  // namespace flashcore::sim
