#include "engine/global_order.hpp"

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace flashcore::sim {
namespace {

// The knowledge that atomic operations publish at each address that they write.
std::unordered_map<const void*, SharedClusters> shown;

// A cluster number has the grid's in its upper bits; this one stands for all
// grids before some grid, which have happened up to its agent 0's epoch.
constexpr int kGridShift = 24;
constexpr ClusterNumber kEarlierGrids = UINT32_MAX;

// Returns the thread's knowledge, including its own past; its later actions are not part of it.
SharedClusters view_of(Thread& thread) {
  ClockJoin home;
  home.add(thread.seen.at_home());
  home.add(thread.agent, thread.now);
  ++thread.now;
  const auto own = std::make_shared<Clusters>();
  (*own)[thread.block->cluster->number] = home.clock();
  return join(thread.seen.abroad(), own);
}

}  // namespace

ClusterNumber cluster_number(uint32_t grid, uint64_t cluster) {
  return grid << kGridShift | static_cast<ClusterNumber>(cluster & ((1u << kGridShift) - 1));
}

bool knows_global(const Thread& thread, ClusterNumber cluster, Agent agent, Epoch epoch) {
  const Cluster& own = *thread.block->cluster;
  if (cluster == own.number) return knows(thread, agent, epoch);
  const uint32_t grid = cluster >> kGridShift;
  if (grid != own.grid->number) return thread.seen.of(kEarlierGrids, 0) > grid;
  return thread.seen.of(cluster, agent) >= epoch;
}

void acquire_global(Thread& thread) {
  const SharedClusters observed = std::exchange(thread.observed, nullptr);
  if (observed == nullptr) return;
  ClockJoin all;
  all.add(thread.seen);
  all.add(observed);
  const auto home = observed->find(thread.block->cluster->number);
  if (home != observed->end()) all.add(home->second);
  thread.seen = all.clock();
}

void fence_global() {
  Thread& thread = self();
  acquire_global(thread);
  thread.fenced = view_of(thread);
}

void order_by_atomic(const void* pointer, bool writes) {
  Thread& thread = self();
  SharedClusters& here = shown[pointer];
  thread.observed = join(thread.observed, here);
  if (writes) here = join(here, thread.fenced);
}

void order_after_earlier_grids(Thread& thread) {
  auto grids = std::make_shared<Clusters>();
  (*grids)[kEarlierGrids] = Clock(std::vector<Epoch>{thread.block->cluster->grid->number}, nullptr);
  ClockJoin all;
  all.add(thread.seen);
  all.add(SharedClusters(std::move(grids)));
  thread.seen = all.clock();
}

void begin_global_order() { shown.clear(); }

}  // namespace flashcore::sim
