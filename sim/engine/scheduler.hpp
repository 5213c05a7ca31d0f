// The scheduler: threads switch at the instructions where they wait, in an
// order that a seed shuffles, and asynchronous operations complete in between.
#pragma once

#include <functional>
#include <string>

#include "engine/machine.hpp"

namespace flashcore::sim {

// Runs another thread until this one is ready again; the caller has cleared its ready bit.
void leave();

// Makes a thread or all live lanes of a warp ready.
void wake(Thread& thread);
void wake(Warp& warp);

// A point at which another thread may overtake this one, for example after an arrival.
void maybe_yield();

// Returns after others have run. For loops that poll memory: if all
// threads only do this, they wait for something that never happens.
void yield_in_loop(const Waiting& waiting);

// Waits to be woken, or for a bounded time.
void sleep(const Waiting& waiting);

// Ends the launch if it cannot continue sensibly.
[[noreturn]] void give_up();

// Adds a fault to the run's findings.
void report(Fault fault, Site here, Site other, const std::string& what);
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);
// "thread 5 of block 3", for messages.
std::string name_of(const Thread& thread);

// Adds an asynchronous operation, which `complete` ends; it is called
// at most once. Under Completion::early, it is called at once.
void add_completion(std::function<void()> complete);  // of this thread
void add_completion(const Cluster& cluster, std::function<void()> complete);

const Policy& policy();
bool chance(unsigned one_in);  // never with seed 0
uint64_t random_below(uint64_t n);

// Runs grids that may overlap to their end, in the order of their launches.
void run_grids(std::vector<std::unique_ptr<Grid>> grids, const Policy& policy, Findings& findings);

}  // namespace flashcore::sim
