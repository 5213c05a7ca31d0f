#include "engine/machine.hpp"

#include <algorithm>
#include <cstring>

#include "engine/access.hpp"
#include "engine/global_order.hpp"
#include "engine/machine_parts.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

constexpr uintptr_t kSharedAlignment = 1024;
constexpr size_t kGuardBytes = 8192;  // before and after, for accesses out of bounds

Index3 index_of(uint64_t n, const Index3& dim) {
  return {static_cast<unsigned>(n % dim.x), static_cast<unsigned>(n / dim.x % dim.y),
          static_cast<unsigned>(n / dim.x / dim.y)};
}

void make_shared(Block& block, uint32_t bytes) {
  block.shared_bytes = bytes;
  block.shadow = Shadow(bytes + kMaxStaticBytes);
  block.memory.assign(bytes + kMaxStaticBytes + kSharedAlignment + 2 * kGuardBytes,
                      policy().poison);
  const auto begin = reinterpret_cast<uintptr_t>(block.memory.data()) + kGuardBytes;
  block.shared = block.memory.data() + kGuardBytes + (kSharedAlignment - begin % kSharedAlignment);
}

std::unique_ptr<Block> make_block(Grid& grid, Cluster& cluster, uint64_t number, int rank) {
  auto block = std::make_unique<Block>();
  const unsigned threads = grid.block.x * grid.block.y * grid.block.z;
  const unsigned warps = (threads + kLanes - 1) / kLanes;
  block->cluster = &cluster;
  block->index = index_of(number, grid.dim);
  block->dim = grid.block, block->grid_dim = grid.dim, block->rank = rank;
  make_shared(*block, grid.shared_bytes);
  block->threads = std::vector<Thread>(threads);
  block->warps = std::vector<Warp>(warps);
  block->warpgroups.resize((warps + WarpgroupSteps::kWarps - 1) / WarpgroupSteps::kWarps);
  block->live_threads = static_cast<int>(threads);
  for (unsigned w = 0; w < warps; ++w) {
    Warp& warp = block->warps[w];
    warp.block = block.get(), warp.index = static_cast<int>(w);
    warp.lanes = &block->threads[size_t{w} * kLanes];
    const unsigned lanes = std::min<unsigned>(kLanes, threads - w * kLanes);
    warp.live = warp.ready = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
    warp.registers = grid.registers;
  }
  for (unsigned t = 0; t < threads; ++t) {
    Thread& thread = block->threads[t];
    thread.block = block.get(), thread.warp = &block->warps[t / kLanes];
    thread.lane = static_cast<int>(t % kLanes);
    thread.index = index_of(t, grid.block);
    thread.agent = static_cast<Agent>(static_cast<unsigned>(rank) * threads + t);
  }
  return block;
}

}  // namespace

std::unique_ptr<Cluster> make_cluster(Grid& grid, uint64_t number) {
  auto cluster = std::make_unique<Cluster>();
  cluster->grid = &grid;
  cluster->number = cluster_number(grid.number, number);
  for (int rank = 0; rank < grid.cluster_blocks; ++rank) {
    const uint64_t block =
        number * static_cast<uint64_t>(grid.cluster_blocks) + static_cast<uint64_t>(rank);
    cluster->blocks.push_back(make_block(grid, *cluster, block, rank));
    cluster->live_threads += cluster->blocks.back()->live_threads;
  }
  cluster->next_agent = static_cast<Agent>(cluster->live_threads);
  return cluster;
}

Agent new_agent(Cluster& cluster) { return cluster.next_agent++; }

void check_end(Thread& thread) {
  Warp& warp = *thread.warp;
  const std::string who = name_of(thread);
  if (!thread.copies.empty()) {
    const Site site = thread.copies.open.empty() ? thread.copies.committed.front().empty()
                                                       ? Site()
                                                       : thread.copies.committed.front()[0]->site
                                                 : thread.copies.open[0]->site;
    if (site) report(Fault::left_with_copies_in_flight, Site(), site, who + " left; started at");
  }
  for (const auto& group : thread.stores.committed) {
    for (const auto& store : group) {
      report(Fault::left_with_stores_unread, Site(), store->site, who + " left; started at");
    }
  }
  for (const auto& store : thread.stores.open) {
    report(Fault::left_with_stores_unread, Site(), store->site, who + " left; started at");
  }
  const bool is_last_of_warp = (warp.live & (warp.live - 1)) == 0;
  if (is_last_of_warp) {
    for (const auto& d : warp.products.accumulators) {
      report(Fault::left_with_products_in_flight, Site(), d->site, who + " left; started at");
    }
  }
  for (const Meeting& meeting : warp.meetings) {
    if ((meeting.mask >> thread.lane & 1) == 0) continue;
    report(Fault::collective_without_lane, meeting.site, Site(),
           who + " left while others wait for it at " + meeting.what);
  }
}

// All threads of the block have exited.
void check_end(Block& block) {
  for (size_t w = 0; w + 3 < block.warps.size(); w += 4) {
    for (size_t i = 1; i < 4; ++i) {
      if (block.warps[w + i].products.issued == block.warps[w].products.issued) continue;
      report(Fault::warpgroup_incomplete, Site(), Site(),
             format("warps %zu and %zu of block %u started %llu and %llu products", w, w + i,
                    block.index.x, static_cast<unsigned long long>(block.warps[w].products.issued),
                    static_cast<unsigned long long>(block.warps[w + i].products.issued)));
    }
  }
  if (block.cluster->grid->starts_early && !block.waited_for_grid) {
    report(Fault::left_without_waiting_for_grid, Site(), Site(),
           format("no thread of block %u ran griddepcontrol.wait", block.index.x));
  }
}

}  // namespace flashcore::sim
