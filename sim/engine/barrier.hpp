// Barriers of the threads of a block, and of a cluster.
#pragma once

#include "engine/machine.hpp"

namespace flashcore::sim {

struct BarrierUse {
  const char* what;
  int id = 0;
  int threads = 0;  // 0: all of the block's
  bool waits = true;
};

// Arrives with the whole warp. If it waits, returns true if `condition` held for any thread.
bool use_barrier(const BarrierUse& use, bool condition, Site site);

// A warp has exited: barriers of all threads wait for one warp less.
void on_warp_end(Block& block);

// barrier.cluster: `orders` is false for the relaxed arrival,
// which shows other threads only the published mbarriers.
void cluster_arrive(bool orders, Site site);
void cluster_wait(Site site);

// setmaxnreg: sets the warp's register count; waits until the block has the registers.
void release_registers(int registers, Site site);
void acquire_registers(int registers, Site site);

}  // namespace flashcore::sim
