// The running parts of the simulated GPU: threads are fibers of one host thread, warps
// synchronise at collectives, blocks share memory and barriers, clusters share clocks.
//
//   Machine > Grid > Cluster > Block > Warp > Thread
//
// Each instruction is in a file of its own; this is the state that they work on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/async_state.hpp"
#include "engine/clock.hpp"
#include "engine/context.hpp"
#include "engine/finding.hpp"
#include "engine/policy.hpp"
#include "engine/shadow.hpp"

namespace flashcore::sim {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

struct Block;
struct Cluster;
struct Grid;
struct Mbarrier;
struct Thread;
struct Warp;

// Why a thread does not run, for deadlock reports.
struct Waiting {
  const char* what = nullptr;
  Site site;
  std::string (*details)(const Thread&) = nullptr;  // which threads are missing
  uint32_t address = 0, parity = 0;                 // of an mbarrier
};

struct Thread {
  Context context;
  size_t stack = 0;  // its index among the machine's stacks
  unsigned char* stack_bottom = nullptr;
  uint32_t* marks = nullptr;  // of its stack
  Block* block = nullptr;
  Warp* warp = nullptr;
  int lane = 0;
  Index3 index;
  Agent agent = 0;
  Epoch now = 1;
  Clock seen;                 // of the other agents
  std::vector<Epoch> fences;  // epochs at which it ran fence.proxy.async
  Waiting waiting;
  CopyGroups copies;   // cp.async
  StoreGroups stores;  // bulk stores
  RegisterRange used_by_products;
  // Global memory: `fenced` is published by a later atomic operation, as of the last fence;
  // `observed` was published by earlier atomic operations, and counts from the next fence on.
  SharedClusters fenced, observed;
  bool saw_cluster_start = false;
  bool sleeps = false;  // in an mbarrier.try_wait, which may also return without success
  std::map<const Mbarrier*, int64_t> last_phase;  // the last phase that it waited for
};

// Lanes that synchronise at one instruction.
struct Meeting {
  const char* what = nullptr;
  uint32_t mask = 0, arrived = 0;
  Site site;
  std::array<void*, kLanes> arguments{};
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  Thread* lanes = nullptr;
  uint32_t live = kAllLanes, ready = kAllLanes;
  std::vector<Meeting> meetings;  // of disjoint sets of lanes
  Products products;              // wgmma
  int registers = 0;
  int cluster_arrivals = 0;
  bool barrier_result = false;

  bool is_live(int lane) const { return (live >> lane & 1) != 0; }
};

struct NamedBarrier {
  int expected = 0, arrived = 0;
  bool any = false, is_of_all = false;
  Site site;  // of the first arrival
  ClockJoin clock;
  std::vector<Warp*> waiting;
};

struct Mbarrier {
  Block* block = nullptr;
  uint32_t address = 0;
  uint32_t count = 0, pending = 0;
  int64_t phase = 0;  // number of complete phases
  int64_t bytes = 0;  // announced, but not yet delivered
  Agent agent = 0;    // epoch 1: initialised; 2 + n: phase n complete
  Agent initializer = 0;
  bool published = false;
  bool has_copies = false;  // some phase has announced bytes
  Site site;
  ClockJoin arriving;
  Clock completed;  // of the last phase
  std::vector<Thread*> waiting;

  Epoch phase_epoch(int64_t n) const { return static_cast<Epoch>(n + 2); }
};

struct Block {
  Cluster* cluster = nullptr;
  Index3 index, dim, grid_dim;
  int rank = 0;                                    // in the cluster
  uint32_t shared_bytes = 0;                       // the launch's, then static objects
  std::vector<unsigned char> memory;               // with room to align
  std::map<const void*, uint32_t> static_objects;  // their offsets
  unsigned char* shared = nullptr;                 // a multiple of 1024
  Shadow shadow{0};
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<WarpgroupSteps> warpgroups;
  std::array<NamedBarrier, 16> barriers;
  std::map<uint32_t, Mbarrier> mbarriers;  // by address
  int free_registers = 0;
  std::vector<Warp*> want_registers;
  int live_threads = 0;
  bool launched_dependents = false, waited_for_grid = false;
};

struct Cluster {
  Grid* grid = nullptr;
  ClusterNumber number = 0;
  std::vector<std::unique_ptr<Block>> blocks;
  Agent next_agent = 0;
  int live_threads = 0;
  // barrier.cluster
  int arrived_warps = 0, phase = 0;
  ClockJoin arriving;
  Clock completed;
  std::vector<Warp*> waiting;
};

// A launch: its blocks start as others exit.
struct Grid {
  uint32_t number = 0;  // in the run
  Index3 dim, block;
  uint32_t shared_bytes = 0, shared_limit = 0;
  int cluster_blocks = 1;
  int registers = 0;  // per thread
  bool starts_early = false;
  Grid* earlier = nullptr;  // the previous grid, which may still run
  std::function<void()> body;
  uint64_t next_cluster = 0, clusters = 0, complete_clusters = 0;
  std::vector<uint64_t> order;      // of clusters
  uint64_t blocks_that_let_go = 0;  // by launch_dependents, or by exiting
  std::vector<Thread*> waiting;     // threads of the next grid that wait for this one's end

  bool is_complete() const { return complete_clusters == clusters; }
};

inline thread_local constinit Thread* current_thread = nullptr;

inline Thread& self() { return *current_thread; }
inline Warp& own_warp() { return *current_thread->warp; }
inline Block& own_block() { return *current_thread->block; }

// Returns whether `thread` knows that an event has happened.
inline bool knows(const Thread& thread, Agent agent, Epoch epoch) {
  return agent == thread.agent || thread.seen.of(agent) >= epoch;
}

// Joins a thread's knowledge, including its own past, to `to`; its later actions are not part of it.
inline void release(Thread& thread, ClockJoin& to) {
  to.add(thread.seen);
  to.add(thread.agent, thread.now);
  ++thread.now;
}
inline void acquire(Thread& thread, const Clock& clock) { thread.seen = join(thread.seen, clock); }

}  // namespace flashcore::sim
