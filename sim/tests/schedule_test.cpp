// The order of threads and blocks: the effect of seeds, reproducibility, and loops that wait.
#include <cuda_runtime.h>

#include <set>
#include <string>

#include "cuda/ptx/load_acquire.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

std::string order_of_blocks(const Policy& policy) {
  static std::string order;
  order.clear();
  run({.grid = {9}, .block = {32}}, policy, [] {
    if (threadIdx.x == 0) order += static_cast<char>('0' + blockIdx.x);
  });
  return order;
}

TEST(Schedule, SeedsShuffleBlocks) {
  EXPECT_EQ(order_of_blocks({.seed = 0, .resident_blocks = 1}), "012345678");
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 8; ++seed) orders.insert(order_of_blocks({.seed = seed}));
  EXPECT_GE(orders.size(), 7U);
}

std::string order_of_lanes(uint64_t seed) {
  static std::string order;
  order.clear();
  run({.grid = {1}, .block = {64}}, {.seed = seed}, [] {
    __syncwarp();
    order += static_cast<char>('0' + threadIdx.x);
    __syncthreads();
    order += static_cast<char>('0' + threadIdx.x);
  });
  return order;
}

TEST(Schedule, ASeedRepeatsItsOrder) {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::string order = order_of_lanes(seed);
    EXPECT_EQ(order.size(), 128U);
    EXPECT_EQ(order, order_of_lanes(seed));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 8U);
}

TEST(Schedule, BlocksThatAreResident) {
  for (const int limit : {1, 2, 5}) {
    static int running, most;
    running = most = 0;
    run({.grid = {12}, .block = {64}}, {.seed = 3, .resident_blocks = limit}, [] {
      if (threadIdx.x == 0) most = std::max(most, ++running);
      __syncthreads();
      __syncthreads();
      if (threadIdx.x == 0) --running;
    });
    // A block about to exit may still be counted when the next one starts.
    EXPECT_LE(most, limit);
    EXPECT_GE(most, std::min(limit, 2));
  }
}

// The last block to arrive reads what all have written: the ticket of split kernels.
TEST(Schedule, LastBlockOfATicket) {
  static int parts[6], sums;
  static unsigned ticket;
  for (const Policy& policy : policies()) {
    std::fill(std::begin(parts), std::end(parts), 0);
    sums = 0, ticket = 0;
    run({.grid = {6}, .block = {32}}, policy, [] {
      if (threadIdx.x != 0) return;
      parts[blockIdx.x] = 1 + static_cast<int>(blockIdx.x);
      __threadfence();
      if (atomicAdd(&ticket, 1U) < gridDim.x - 1) return;
      for (const int part : parts) sums += part;
    });
    EXPECT_EQ(sums, 21) << text_of(policy);
  }
}

// A loop that polls memory lets the writer run; one that polls in vain is a deadlock.
TEST(Schedule, LoopThatWatchesMemory) {
  static unsigned long long flag;
  const auto kernel = [](bool faulty) {
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 40 && !faulty) flag = 1;
    if (threadIdx.x == 3) {
      while (ptx::load_acquire(&flag) == 0) {
      }
    }
  };
  expect_fault_only_in_first(Fault::deadlock, {.grid = {1}, .block = {64}}, kernel);
}

TEST(Schedule, LaunchesThatARuntimeRefuses) {
  expect_fault(Fault::launch_refused, {.grid = {1}, .block = {1056}}, [] {});
  expect_fault(Fault::launch_refused, {.grid = {3}, .block = {32}, .cluster_blocks = 2}, [] {});
  expect_clean({.grid = {4}, .block = {1024}, .cluster_blocks = 2}, [] {});
}

}  // namespace
}  // namespace flashcore::sim
