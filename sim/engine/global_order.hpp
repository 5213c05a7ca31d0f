// The order of accesses of global memory. Within a cluster, shared memory gives
// it: barriers, __syncwarp, mbarriers. Between blocks, it is a chain
//
//   writes | fence | atomic operation  ->  atomic operation of the same address | fence | reads
//
// as in CUDA's memory model; an acquire load is an atomic operation and a fence. In
// addition, a grid that has waited for the previous one comes after all of that grid.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/machine.hpp"

namespace flashcore::sim {

// Returns a cluster's number in the run.
ClusterNumber cluster_number(uint32_t grid, uint64_t cluster);

// Returns whether `thread` knows of an event, possibly of another cluster.
bool knows_global(const Thread& thread, ClusterNumber cluster, Agent agent, Epoch epoch);

// __threadfence.
void fence_global();

// An atomic operation at this address, which reads it and, if `writes`, writes it.
void order_by_atomic(const void* pointer, bool writes);
// Makes its published knowledge count at once.
void acquire_global(Thread& thread);

// griddepcontrol.wait has returned.
void order_after_earlier_grids(Thread& thread);

// Starts a run: no atomic operation has happened.
void begin_global_order();

}  // namespace flashcore::sim
