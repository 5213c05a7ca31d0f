// Barriers of the threads of a block, and of a cluster.
#pragma once

#include "engine/machine.hpp"

namespace flashcore::sim {

struct BarrierUse {
  const char* what;
  int id = 0;
  int threads = 0;  // 0: all of the block
  bool waits = true;
};

// Arrives with the whole warp; true when `condition` held for any thread, where it waits.
bool use_barrier(const BarrierUse& use, bool condition, Site site);

// A warp has left: barriers of all threads wait for one less.
void on_warp_end(Block& block);

// barrier.cluster: `orders` is false for the relaxed arrival, which shows others no more than the
// mbarriers that were published.
void cluster_arrive(bool orders, Site site);
void cluster_wait(Site site);

// setmaxnreg: the warp's registers from now on; waits until the block has them.
void release_registers(int registers, Site site);
void acquire_registers(int registers, Site site);

}  // namespace flashcore::sim
