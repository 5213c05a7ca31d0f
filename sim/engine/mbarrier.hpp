// Transaction barriers in shared memory (mbarrier).
#pragma once

#include <cstdint>

#include "engine/machine.hpp"

namespace flashcore::sim {

void init_mbarrier(uint32_t address, uint32_t count, Site site);

// fence.mbarrier_init: barriers that this thread initialised may be used by copies and by the cluster.
void publish_mbarriers();

// Adds to `to` that this thread's published mbarriers are initialised.
void release_published(Thread& thread, ClockJoin& to);

// `bytes` are announced with the arrival. The address may be in another block of the cluster.
void arrive_at_mbarrier(uint32_t address, int64_t bytes, Site site);

// Returns whether the phase of this parity is complete; if so, it counts as waited for.
bool try_wait_mbarrier(uint32_t address, uint32_t parity, Site site);
void wait_mbarrier(uint32_t address, uint32_t parity, Site site);

// Finds and checks the barrier of an operation when the operation starts.
Mbarrier& mbarrier_at(Block& block, uint32_t address, Site site);
void check_published(const Mbarrier& barrier, Site site);
// A copy shows its data to threads that wait for it; of its issuer's knowledge, it
// only shows which phases of barriers without copies were complete when it started.
Clock phases_known_to(const Thread& issuer);
void deliver_bytes(Mbarrier& barrier, uint32_t bytes, const Clock& known_phases);
void arrive_later(Mbarrier& barrier, const Clock& issuer, Site site);

// Returns what the barrier's current phase shows to threads that wait for it.
Access access_of_phase(const Mbarrier& barrier, Site site);

}  // namespace flashcore::sim
