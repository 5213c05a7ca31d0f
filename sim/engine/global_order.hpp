// What orders accesses of global memory. Within a cluster that is what orders shared memory:
// barriers, __syncwarp, mbarriers. Between blocks it is a chain
//
//   writes | fence | atomic operation  ->  atomic operation of the same address | fence | reads
//
// as in CUDA's memory model; an acquire load is an atomic operation and a fence. And a grid that has
// waited for the one before it comes after all of that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/machine.hpp"

namespace flashcore::sim {

// A cluster's number in the run.
ClusterNumber cluster_number(uint32_t grid, uint64_t cluster);

// Whether `thread` knows of an event, which may be another cluster's.
bool knows_global(const Thread& thread, ClusterNumber cluster, Agent agent, Epoch epoch);

// __threadfence.
void fence_global();

// An atomic operation at this address, which reads it and, with `writes`, writes it.
void order_by_atomic(const void* pointer, bool writes);
// What it has shown counts at once.
void acquire_global(Thread& thread);

// griddepcontrol.wait has returned.
void order_after_earlier_grids(Thread& thread);

// A run begins: no atomic operation has been.
void begin_global_order();

}  // namespace flashcore::sim
