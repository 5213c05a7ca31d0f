#include "engine/scheduler.hpp"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <random>

#include "engine/barrier.hpp"
#include "engine/crash.hpp"
#include "engine/deadlock.hpp"
#include "engine/global_order.hpp"
#include "engine/global_shadow.hpp"
#include "engine/grid_dependence.hpp"
#include "engine/machine_parts.hpp"

namespace flashcore::sim {
namespace {

// The limit of consecutive turns in which loops only poll memory, or waits are woken in vain.
constexpr int kVainTurns = 20000;
// After this many, operations that otherwise wait until nothing
// else can run are performed as well: the loops may wait for them.
constexpr int kTurnsUntilLate = 256;

// An asynchronous operation of a thread of `cluster`.
struct Completing {
  const Cluster* cluster;
  std::function<void()> operation;
};

struct Machine {
  Machine(std::vector<std::unique_ptr<Grid>> launched, const Policy& chosen, Findings& found)
      : grids(std::move(launched)), settings(chosen), findings(found), random(chosen.seed) {}

  std::vector<std::unique_ptr<Grid>> grids;
  const Policy& settings;
  Findings& findings;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Cluster>> running;
  std::vector<Warp*> warps;            // of the running clusters
  size_t turn = SIZE_MAX;              // the warp that ran last; initially none
  std::deque<Completing> completions;  // oldest first, until a random one is taken
  Stacks* stacks = nullptr;
  std::vector<size_t> free_stacks;
  std::vector<std::unique_ptr<Cluster>> ended;  // the last one's stack may still be in use
  Context main;
  int vain_turns = 0;
};
Machine* machine = nullptr;

bool has_room(const Grid& grid) {
  size_t blocks = 0;
  for (const auto& cluster : machine->running) blocks += cluster->blocks.size();
  const auto threads = size_t{grid.block.x} * grid.block.y * grid.block.z;
  const auto wanted = static_cast<size_t>(grid.cluster_blocks);
  return machine->running.empty() ||
         (blocks + wanted <= static_cast<size_t>(machine->settings.resident_blocks) &&
          threads * wanted <= machine->free_stacks.size());
}

void thread_main();

void begin_cluster(Grid& grid) {
  auto cluster = make_cluster(grid, grid.order[grid.next_cluster++]);
  for (auto& block : cluster->blocks) {
    for (Thread& thread : block->threads) {
      thread.stack = machine->free_stacks.back();
      machine->free_stacks.pop_back();
      thread.stack_bottom = machine->stacks->bottom(thread.stack);
      thread.marks = machine->stacks->marks(thread.stack);
      prepare(thread.context, machine->stacks->top(thread.stack), thread_main);
    }
    for (Warp& warp : block->warps) machine->warps.push_back(&warp);
    block->free_registers = 0;
  }
  machine->running.push_back(std::move(cluster));
}

// Starts clusters while there is room: of the first grid that
// has some left, and of the next one if it may start early.
void begin_clusters() {
  for (size_t i = 0; i < machine->grids.size(); ++i) {
    Grid& grid = *machine->grids[i];
    Grid* const earlier = i > 0 ? machine->grids[i - 1].get() : nullptr;
    if (earlier != nullptr && !may_begin(grid, *earlier)) return;
    while (grid.next_cluster < grid.clusters && has_room(grid)) begin_cluster(grid);
  }
}

void set_current(Thread& thread) { current_thread = &thread; }

Thread* pick_lane(Warp& warp) {
  if (machine->settings.seed == 0) return &warp.lanes[std::countr_zero(warp.ready)];
  int skip = static_cast<int>(machine->random() % static_cast<unsigned>(std::popcount(warp.ready)));
  uint32_t ready = warp.ready;
  while (skip-- > 0) ready &= ready - 1;
  return &warp.lanes[std::countr_zero(ready)];
}

Warp* pick_warp() {
  const size_t count = machine->warps.size();
  if (count == 0) return nullptr;
  const size_t begin = machine->settings.seed == 0 ? machine->turn + 1 : machine->random() % count;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (begin + i) % count;
    if (machine->warps[at]->ready == 0) continue;
    machine->turn = at;
    return machine->warps[at];
  }
  return nullptr;
}

void complete(size_t i) {
  std::deque<Completing>& all = machine->completions;
  const std::function<void()> operation = std::move(all[i].operation);
  if (i == 0) {
    all.pop_front();
  } else {
    if (i + 1 < all.size()) all[i] = std::move(all.back());
    all.pop_back();
  }
  operation();
}

// Completes a cluster's operations: none may remain after it has exited.
void complete_all_of(const Cluster& cluster) {
  for (size_t i = 0; i < machine->completions.size();) {
    if (machine->completions[i].cluster == &cluster) {
      complete(i);  // another one takes its place
    } else {
      ++i;
    }
  }
}

// Returns the threads that wait for a bounded time.
std::vector<Thread*> sleepers() {
  std::vector<Thread*> all;
  for (Warp* warp : machine->warps) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (warp->is_live(lane) && warp->lanes[lane].sleeps) all.push_back(&warp->lanes[lane]);
    }
  }
  return all;
}
Thread* find_sleeper() {
  const std::vector<Thread*> all = sleepers();
  return all.empty() ? nullptr : all[machine->random() % all.size()];
}

// Returns the thread that runs next; null if all have exited or are blocked.
Thread* pick() {
  if (current_thread != nullptr && current_thread->warp->ready != 0 && !chance(4)) {
    return pick_lane(*current_thread->warp);
  }
  while (true) {
    begin_clusters();
    const bool at_random = machine->settings.completion == Completion::random;
    if (at_random && !machine->completions.empty() && machine->random() % 4 == 0) {
      complete(machine->random() % machine->completions.size());
    }
    if (Warp* const warp = pick_warp(); warp != nullptr) return pick_lane(*warp);
    if (!machine->completions.empty()) {
      complete(random_below(machine->completions.size()));
    } else if (machine->warps.empty()) {
      return nullptr;
    } else if (Thread* const sleeper = find_sleeper();
               sleeper != nullptr && ++machine->vain_turns < kVainTurns) {
      wake(*sleeper);
    } else {
      report_deadlock(machine->warps);
      return nullptr;
    }
  }
}

void switch_to(Thread& thread) {
  Thread& from = self();
  if (&thread == &from) return;
  set_current(thread);
  switch_context(from.context, thread.context);
}

[[noreturn]] void end_thread() {
  Thread& thread = self();
  check_end(thread);
  Warp& warp = *thread.warp;
  Block& block = *thread.block;
  Cluster& cluster = *block.cluster;
  warp.live &= ~(1u << thread.lane);
  warp.ready &= ~(1u << thread.lane);
  machine->free_stacks.push_back(thread.stack);
  machine->vain_turns = 0;
  if (warp.live == 0) on_warp_end(block);
  if (--block.live_threads == 0) {
    check_end(block);
    on_block_end(block);
  }
  if (--cluster.live_threads == 0) {
    complete_all_of(cluster);
    std::erase_if(machine->warps, [&](const Warp* w) { return w->block->cluster == &cluster; });
    on_cluster_end(*cluster.grid);
    const auto place = std::find_if(machine->running.begin(), machine->running.end(),
                                    [&](const auto& c) { return c.get() == &cluster; });
    machine->ended.clear();
    machine->ended.push_back(std::move(*place));
    machine->running.erase(place);
  }
  // This thread's stack may be given to a new block, which initialises only its far end.
  Thread* const next = pick();
  if (next == nullptr) {
    switch_context(thread.context, machine->main);
  } else {
    set_current(*next);
    switch_context(thread.context, next->context);
  }
  __builtin_trap();
}

void thread_main() {
  self().block->cluster->grid->body();
  end_thread();
}

void go_on_with_another() {
  Thread* const next = pick();
  if (next == nullptr) give_up();
  switch_to(*next);
}

}  // namespace

void leave() {
  machine->vain_turns = 0;
  go_on_with_another();
}

void sleep(const Waiting& waiting) {
  Thread& thread = self();
  thread.waiting = waiting;
  thread.sleeps = true;
  thread.warp->ready &= ~(1u << thread.lane);
  go_on_with_another();
}

void wake(Thread& thread) {
  thread.waiting = {};
  thread.sleeps = false;
  thread.warp->ready |= 1u << thread.lane;
}

void wake(Warp& warp) {
  for (int lane = 0; lane < kLanes; ++lane) warp.lanes[lane].waiting = {};
  warp.ready |= warp.live;
}

void maybe_yield() {
  if (!chance(4)) return;
  if (Warp* const warp = pick_warp(); warp != nullptr) switch_to(*pick_lane(*warp));
}

void yield_in_loop(const Waiting& waiting) {
  if (++machine->vain_turns > kVainTurns) {
    self().waiting = waiting;
    report_deadlock(machine->warps);
    give_up();
  }
  const bool is_late = machine->vain_turns % kTurnsUntilLate == 0;
  if (!machine->completions.empty() && (is_late || policy().completion != Completion::late)) {
    complete(random_below(machine->completions.size()));
  }
  if (is_late) {
    for (Thread* const sleeper : sleepers()) wake(*sleeper);
  }
  Warp* const warp = pick_warp();
  Thread* const other = warp == nullptr ? nullptr : pick_lane(*warp);
  if (other == nullptr || other == &self()) {
    if (!machine->completions.empty()) complete(random_below(machine->completions.size()));
    return;
  }
  switch_to(*other);
}

void give_up() {
  switch_context(self().context, machine->main);
  __builtin_trap();
}

void report(Fault fault, Site here, Site other, const std::string& what) {
  machine->findings.add(fault, here, other, what);
}

std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  return text;
}

std::string name_of(const Thread& thread) {
  const Index3& block = thread.block->index;
  const int number = thread.warp->index * kLanes + thread.lane;
  if (block.y == 0 && block.z == 0) return format("thread %d of block %u", number, block.x);
  return format("thread %d of block (%u, %u, %u)", number, block.x, block.y, block.z);
}

void add_completion(std::function<void()> operation) {
  add_completion(*self().block->cluster, std::move(operation));
}
void add_completion(const Cluster& cluster, std::function<void()> operation) {
  if (policy().completion == Completion::early) {
    operation();
  } else {
    machine->completions.push_back({&cluster, std::move(operation)});
  }
}

const Policy& policy() { return machine->settings; }
bool chance(unsigned one_in) { return policy().seed != 0 && machine->random() % one_in == 0; }
uint64_t random_below(uint64_t n) { return policy().seed == 0 ? 0 : machine->random() % n; }

// Returns at least `count` stacks, if possible the previous run's, whose
// pages exist already. Old marks of registers are less than any later wgmma.fence.
static Stacks& stacks_for(size_t count) {
  static std::unique_ptr<Stacks> kept;
  if (kept == nullptr || kept->count() < count) kept = std::make_unique<Stacks>(count);
  return *kept;
}

void run_grids(std::vector<std::unique_ptr<Grid>> grids, const Policy& policy, Findings& findings) {
  Machine made(std::move(grids), policy, findings);
  machine = &made;
  size_t stacks = 0;
  for (const auto& grid : made.grids) {
    grid->number = static_cast<uint32_t>(&grid - made.grids.data());
    const auto threads = size_t{grid->block.x} * grid->block.y * grid->block.z;
    const auto blocks = std::max(grid->cluster_blocks, policy.resident_blocks);
    stacks = std::max(stacks, threads * static_cast<size_t>(blocks));
    for (uint64_t i = 0; i < grid->clusters; ++i) grid->order.push_back(i);
    if (policy.seed != 0) std::shuffle(grid->order.begin(), grid->order.end(), made.random);
  }
  made.stacks = &stacks_for(stacks);
  begin_global_order();
  for (size_t i = stacks; i-- > 0;) made.free_stacks.push_back(i);
  current_thread = nullptr;
  const CrashReport crash(findings);
  if (Thread* const first = pick(); first != nullptr) {
    set_current(*first);
    switch_context(made.main, first->context);
  }
  current_thread = nullptr;
  end_global_races();
  machine = nullptr;
}

}  // namespace flashcore::sim
