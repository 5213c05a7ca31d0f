#include "engine/barrier.hpp"

#include <algorithm>

#include "engine/collective.hpp"
#include "engine/mbarrier.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

std::string missing_warps(const Thread& thread) {
  for (const NamedBarrier& barrier : thread.block->barriers) {
    for (const Warp* warp : barrier.waiting) {
      if (warp != thread.warp) continue;
      return format("%d of %d threads have come", barrier.arrived, barrier.expected);
    }
  }
  return {};
}

void wait_in(Warp& warp, const char* what, Site site, std::string (*details)(const Thread&)) {
  for (int lane = 0; lane < kLanes; ++lane) warp.lanes[lane].waiting = {what, site, details};
}

int all_threads(const Block& block) { return static_cast<int>(block.warps.size()) * kLanes; }

// A barrier of all threads does not wait for warps that have exited.
int not_awaited(const NamedBarrier& barrier, const Block& block) {
  if (!barrier.is_of_all) return 0;
  const auto left = std::count_if(block.warps.begin(), block.warps.end(),
                                  [](const Warp& warp) { return warp.live == 0; });
  return static_cast<int>(left) * kLanes;
}

void check_use(const BarrierUse& use, int threads, Site site) {
  if (use.id >= 0 && use.id < 16 && threads > 0 && threads % kLanes == 0) return;
  report(Fault::barrier_misused, site, Site(),
         format("%s %d of %d threads: wanted 0 to 15, and whole warps", use.what, use.id, threads));
  give_up();
}

// All have arrived: every waiter learns what any of them knew.
void complete(NamedBarrier& barrier) {
  const Clock clock = barrier.clock.clock();
  for (Warp* warp : barrier.waiting) {
    for (int lane = 0; lane < kLanes; ++lane) warp->lanes[lane].seen = clock;
    warp->barrier_result = barrier.any;
    wake(*warp);
  }
  barrier = {};
}

bool arrive(const BarrierUse& use, Warp& warp, const Meeting& meeting) {
  Block& block = *warp.block;
  const int threads = use.threads != 0 ? use.threads : all_threads(block);
  check_use(use, threads, meeting.site);
  NamedBarrier& barrier = block.barriers[static_cast<size_t>(use.id)];
  if (barrier.expected != 0 && barrier.expected != threads) {
    report(
        Fault::barrier_counts_differ, meeting.site, barrier.site,
        format("%s %d of %d threads, but of %d at", use.what, use.id, threads, barrier.expected));
    give_up();
  }
  if (barrier.expected == 0) barrier.site = meeting.site;
  barrier.expected = threads;
  barrier.is_of_all = use.threads == 0;
  barrier.arrived += kLanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (warp.is_live(lane)) release(warp.lanes[lane], barrier.clock);
    const auto* const condition = static_cast<bool*>(meeting.arguments[static_cast<size_t>(lane)]);
    if (condition != nullptr && *condition) barrier.any = true;
  }
  if (use.waits) {
    barrier.waiting.push_back(&warp);
    wait_in(warp, use.what, meeting.site, missing_warps);
  }
  if (barrier.arrived + not_awaited(barrier, block) >= threads) complete(barrier);
  return !use.waits;
}

}  // namespace

void on_warp_end(Block& block) {
  for (NamedBarrier& barrier : block.barriers) {
    if (!barrier.is_of_all || barrier.waiting.empty()) continue;
    if (barrier.arrived + not_awaited(barrier, block) >= barrier.expected) complete(barrier);
  }
}

bool use_barrier(const BarrierUse& use, bool condition, Site site) {
  Warp& warp = own_warp();
  // __syncthreads counts existing threads; an incomplete warp has fewer lanes.
  meet({use.what, warp.live, true}, &condition, site,
       [&](Warp& w, Meeting& meeting) { return arrive(use, w, meeting); });
  return warp.barrier_result;
}

void cluster_arrive(bool orders, Site site) {
  meet({"barrier.cluster.arrive", own_warp().live, true}, nullptr, site, [&](Warp& warp, Meeting&) {
    Cluster& cluster = *warp.block->cluster;
    ++warp.cluster_arrivals;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!warp.is_live(lane)) continue;
      if (orders) {
        release(warp.lanes[lane], cluster.arriving);
      } else {
        release_published(warp.lanes[lane], cluster.arriving);
      }
    }
    int warps = 0;
    for (const auto& block : cluster.blocks) warps += static_cast<int>(block->warps.size());
    if (++cluster.arrived_warps < warps) return;
    cluster.arrived_warps = 0;
    ++cluster.phase;
    cluster.completed = cluster.arriving.clock();
    for (Warp* other : cluster.waiting) wake(*other);
    cluster.waiting.clear();
  });
}

void cluster_wait(Site site) {
  meet({"barrier.cluster.wait", own_warp().live, true}, nullptr, site, [&](Warp& warp, Meeting&) {
    Cluster& cluster = *warp.block->cluster;
    if (cluster.phase >= warp.cluster_arrivals) return true;
    wait_in(warp, "barrier.cluster.wait", site, nullptr);
    cluster.waiting.push_back(&warp);
    return false;
  });
  self().saw_cluster_start = true;
  acquire(self(), self().block->cluster->completed);
}

namespace {

bool take(Warp& warp, int registers) {
  Block& block = *warp.block;
  const int more = registers - warp.registers;
  if (more > block.free_registers) return false;
  block.free_registers -= more;
  warp.registers = registers;
  return true;
}

void check_registers(int registers, bool is_wrong_way, const char* what, Site site) {
  const int now = own_warp().registers;
  if (registers >= 24 && registers <= 256 && registers % 8 == 0 && !is_wrong_way) return;
  report(Fault::register_count_misused, site, Site(),
         format("%s of %d registers where the warp has %d", what, registers, now));
}

std::string missing_registers(const Thread& thread) {
  return format("the warp has %d a thread, %d more are free in the block", thread.warp->registers,
                thread.block->free_registers);
}

}  // namespace

void release_registers(int registers, Site site) {
  meet({"setmaxnreg.dec", kAllLanes, true}, nullptr, site, [&](Warp& warp, Meeting&) {
    check_registers(registers, registers > warp.registers, "setmaxnreg.dec", site);
    take(warp, registers);
    for (Warp* other : warp.block->want_registers) wake(*other);
    warp.block->want_registers.clear();
  });
}

void acquire_registers(int registers, Site site) {
  bool done = false;
  while (!done) {
    meet({"setmaxnreg.inc", kAllLanes, true}, &done, site, [&](Warp& warp, Meeting& meeting) {
      check_registers(registers, registers < warp.registers, "setmaxnreg.inc", site);
      const bool taken = take(warp, registers);
      for (void* argument : meeting.arguments) *static_cast<bool*>(argument) = taken;
      if (taken) return true;
      wait_in(warp, "setmaxnreg.inc", site, missing_registers);
      warp.block->want_registers.push_back(&warp);
      return false;
    });
  }
}

}  // namespace flashcore::sim
