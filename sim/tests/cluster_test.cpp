// Clusters: barriers, stores to the other block, copies to several blocks, blocks that start and exit.
#include "cuda/ptx/cluster.cuh"

#include <cuda_runtime.h>

#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"
#include "tests/support.hpp"
#include "tests/tensor_maps.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kPairs{
    .grid = {6}, .block = {32}, .shared_bytes = 4096, .cluster_blocks = 2};

enum class ExchangeFault {
  none,
  start_not_awaited,
  not_published,
  not_awaited,
  too_few_bytes,
  end_not_awaited,
  no_such_block
};

struct Shared {
  alignas(16) uint32_t received[3][32][4];
  uint64_t barrier;
};

// Each block sends every lane's numbers to the other block, and reads those it receives.
void exchange(ExchangeFault fault) {
  Shared& smem = *shared_array<Shared>();
  const uint32_t lane = threadIdx.x, rank = blockIdx.x % 2, other = 1 - rank;
  const uint32_t barrier = ptx::shared_address(&smem.barrier);
  constexpr uint32_t kBytes = 32 * (16 + 8 + 4);
  if (lane == 0) {
    ptx::mbarrier_init(barrier, 1);
    if (fault != ExchangeFault::not_published) ptx::publish_barriers();
    ptx::mbarrier_arrive_expect(barrier,
                                fault == ExchangeFault::too_few_bytes ? kBytes - 4 * 32 : kBytes);
  }
  __syncwarp();
  ptx::cluster_arrive_relaxed();
  if (fault != ExchangeFault::start_not_awaited) ptx::cluster_wait();
  const auto there = [&](const void* here) {
    return ptx::cluster_address(ptx::shared_address(here),
                                fault == ExchangeFault::no_such_block ? 2 : other);
  };
  ptx::store_async(there(smem.received[0][lane]), {lane, rank, 5, 6}, there(&smem.barrier));
  const uint32_t pair[2] = {lane, 7};
  ptx::store_async(there(smem.received[1][lane]), pair, there(&smem.barrier));
  ptx::store_async(there(smem.received[2][lane]), 8 * lane, there(&smem.barrier));
  if (fault != ExchangeFault::not_awaited) ptx::mbarrier_wait_cluster(barrier, 0);
  const uint32_t from = load(smem.received[0][31 - lane][1]);
  const uint32_t last = load(smem.received[2][31 - lane][0]);
  if (fault == ExchangeFault::none && (from != other || last != 8 * (31 - lane))) __trap();
  if (fault == ExchangeFault::end_not_awaited) return;
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

TEST(Cluster, BlocksExchange) {
  expect_clean(kPairs, [] { exchange(ExchangeFault::none); });
}

// Each block has waited for its data, so exiting is safe: the other's stores have arrived.
TEST(Cluster, LeavingAfterAllHasComeIsSafe) {
  expect_clean(kPairs, [] { exchange(ExchangeFault::end_not_awaited); });
}

TEST(Cluster, FaultsOfAnExchange) {
  const auto expect = [](ExchangeFault fault, const std::vector<Fault>& wanted) {
    expect_one_of(wanted, kPairs, [=] { exchange(fault); });
  };
  expect(ExchangeFault::start_not_awaited, {Fault::remote_access_before_start, Fault::no_mbarrier});
  expect(ExchangeFault::not_published, {Fault::no_mbarrier, Fault::mbarrier_not_published});
  expect(ExchangeFault::not_awaited,
         {Fault::read_of_bytes_in_flight, Fault::race, Fault::read_of_unwritten_bytes});
  expect(ExchangeFault::too_few_bytes, {Fault::read_of_bytes_in_flight, Fault::race,
                                        Fault::read_of_unwritten_bytes, Fault::deadlock});
  expect(ExchangeFault::no_such_block, {Fault::outside_shared_memory});
}

// A block that exits at once, while the other stores to it.
TEST(Cluster, LeftWhileTheOtherWrites) {
  const auto kernel = [](bool faulty) {
    Shared& smem = *shared_array<Shared>();
    const uint32_t rank = blockIdx.x % 2;
    const uint32_t barrier = ptx::shared_address(&smem.barrier);
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier, 1);
      ptx::publish_barriers();
      if (rank == 1) ptx::mbarrier_arrive_expect(barrier, 4);
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
    if (rank == 0 && threadIdx.x == 0) {
      ptx::store_async(ptx::cluster_address(ptx::shared_address(smem.received), 1), 9u,
                       ptx::cluster_address(barrier, 1));
    }
    if (rank == 1 && !faulty) ptx::mbarrier_wait_cluster(barrier, 0);
  };
  expect_clean(kPairs, [&] { kernel(false); });
  // If the store completes before that, nothing happens.
  expect_fault_in_some_order(Fault::remote_access_after_end, kPairs, [&] { kernel(true); });
}

// One block loads for both; each waits at its own barrier, and signals when its slot is free.
TEST(Cluster, Multicast) {
  Matrix matrix(8, 64, 1);
  const CUtensorMap map = matrix.map(8, 64, 0);
  const auto kernel = [&](bool faulty) {
    auto* const shared = shared_array<unsigned char>();
    const uint32_t full = ptx::shared_address(shared + 1024);
    const uint32_t empty = ptx::shared_address(shared + 1032);
    const uint32_t rank = blockIdx.x % 2;
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(full, 1);
      ptx::mbarrier_init(empty, 2);
      ptx::publish_barriers();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
    for (uint32_t round = 0; round < 3; ++round) {
      if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(full, 512);
        if (rank == 0) {
          if (!faulty) ptx::mbarrier_wait_cluster(empty, (round & 1) ^ 1);
          ptx::tma_load_4d_multicast(ptx::shared_address(shared), &map, full, 3, 0, 0, 0, 0);
        }
      }
      ptx::mbarrier_wait(full, round & 1);
      const size_t at = 16 * threadIdx.x;
      if (load(shared[at]) != matrix.bytes[at] && !faulty) __trap();
      __syncwarp();
      if (threadIdx.x == 0) ptx::mbarrier_arrive_cluster(ptx::cluster_address(empty, 0));
    }
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  };
  expect_clean(kPairs, [&] { kernel(false); });
  expect_one_of({Fault::race, Fault::write_to_bytes_in_flight}, kPairs, [&] { kernel(true); });
}

// --- grids that overlap ---

struct Chain {
  int first[4] = {}, early[4] = {}, late[4] = {};
};

std::string run_chain(Chain& chain, const Policy& policy, bool waits) {
  const LaunchOptions options{.grid = {4}, .block = {32}};
  Simulator simulator(policy);
  simulator.launch(options, [&] {
    ptx::start_next_grid();
    __syncwarp();
    if (threadIdx.x == 0) chain.first[blockIdx.x] = 1;
  });
  LaunchOptions second = options;
  second.starts_early = true;
  simulator.launch(second, [&, waits] {
    if (threadIdx.x == 0) chain.early[blockIdx.x] = load(chain.first[3 - blockIdx.x]);
    if (waits) ptx::wait_for_earlier_grids();
    if (threadIdx.x == 0) chain.late[blockIdx.x] = load(chain.first[3 - blockIdx.x]);
  });
  simulator.synchronize();
  return simulator.findings().text();
}

TEST(EarlyLaunch, WhatTheEarlierGridWritesIsThereAfterTheWait) {
  int not_yet_there = 0;
  for (Policy policy : policies()) {
    policy.resident_blocks = 8;
    Chain chain;
    EXPECT_EQ(run_chain(chain, policy, true), "");
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(chain.late[i], 1) << text_of(policy);
      not_yet_there += 1 - chain.early[i];
    }
  }
  EXPECT_GT(not_yet_there, 0);  // the grids did overlap
}

TEST(EarlyLaunch, LeavingWithoutWaiting) {
  for (const Policy& policy : policies()) {
    Chain chain;
    EXPECT_THAT(run_chain(chain, policy, false),
                testing::HasSubstr("ran griddepcontrol.wait (4 times)"));
  }
}

}  // namespace
}  // namespace flashcore::sim
