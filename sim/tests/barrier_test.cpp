// Barriers of warps, blocks and the register file: threads that are missing or arrive too often.
#include <cuda_runtime.h>

#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/sync.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kFourWarps{.grid = {2}, .block = {128}, .shared_bytes = 4096};

int thread() { return static_cast<int>(threadIdx.x); }
int lane() { return thread() % 32; }

TEST(Warp, ShufflesAndVotes) {
  expect_clean(kFourWarps, [] {
    if (__shfl_xor_sync(kAllLanes, lane(), 5) != (lane() ^ 5)) __trap();
    if (__shfl_sync(kAllLanes, 1.5F * static_cast<float>(lane()), 7) != 10.5F) __trap();
    const double third = lane() / 3.0;
    if (__shfl_xor_sync(kAllLanes, third, 5) != (lane() ^ 5) / 3.0) __trap();
    if (__shfl_up_sync(kAllLanes, lane(), 3) != (lane() < 3 ? lane() : lane() - 3)) __trap();
    if (__ballot_sync(kAllLanes, lane() % 3 == 0) != 0x49249249u) __trap();
    if (__any_sync(kAllLanes, lane() == 40) != 0 || __all_sync(kAllLanes, true) != 1) __trap();
    if (__reduce_add_sync(kAllLanes, threadIdx.x % 32) != 496) __trap();
    if (ptx::uniform(lane() == 4 ? 8u : 0u) != 8) __trap();
  });
}

TEST(Warp, PartsOfAWarpMeetByMask) {
  expect_clean(kFourWarps, [] {
    const uint32_t mask = lane() < 8 ? 0xffu : 0xffffff00u;
    const int first = lane() < 8 ? 0 : 8;
    if (__shfl_sync(mask, lane(), first) != first) __trap();
    __syncwarp(mask);
    __syncwarp();
  });
}

TEST(Warp, InstructionInsideOfOneLanesBranch) {
  expect_fault_only_in_first(Fault::divergent_collective, kFourWarps, [](bool faulty) {
    if (faulty && lane() == 3) {
      ptx::uniform(1);
    }
    __syncwarp();
  });
}

TEST(Warp, ShuffleThatALaneSkips) {
  expect_fault_only_in_first(Fault::collective_without_lane, kFourWarps, [](bool faulty) {
    if (faulty && lane() == 5) return;
    __shfl_xor_sync(kAllLanes, 1, 1);
  });
}

TEST(Warp, LaneOutsideOfItsOwnMask) {
  expect_fault_only_in_first(Fault::collective_without_lane, kFourWarps, [](bool faulty) {
    if (lane() < 16) __syncwarp(faulty && lane() == 2 ? 0xffff0000u : 0xffffu);
  });
}

TEST(Warp, ShuffleFromOutsideOfTheMask) {
  expect_fault_only_in_first(Fault::collective_without_lane, kFourWarps, [](bool faulty) {
    if (lane() < 16) __shfl_sync(0xffffu, 1, faulty ? 20 : 10);
  });
}

TEST(Block, BarrierThatAWarpSkips) {
  expect_fault_only_in_first(Fault::deadlock, kFourWarps, [](bool faulty) {
    const int expected = 128;
    if (!faulty || thread() >= 32) ptx::named_barrier_sync(1, expected);
    __syncwarp();
  });
}

TEST(Block, DeadlockSaysWhoWaitsWhere) {
  static int line = 0;
  const Findings findings = run(kFourWarps, {}, [] {
    if (thread() >= 32) ptx::named_barrier_sync(3, 128), line = __LINE__;
    if (thread() >= 32) line = 0;
  });
  const std::string text = findings.text();
  EXPECT_THAT(text, testing::HasSubstr("warp 1, all lanes: barrier_test.cpp:"));
  EXPECT_THAT(text, testing::HasSubstr("barrier.sync (96 of 128 threads have come)"));
}

TEST(Block, CountsThatDiffer) {
  expect_fault_only_in_first(Fault::barrier_counts_differ, kFourWarps, [](bool faulty) {
    ptx::named_barrier_sync(2, faulty && thread() >= 64 ? 64 : 128);
  });
}

TEST(Block, BarrierOfAPartOfAWarp) {
  expect_fault_only_in_first(Fault::barrier_misused, kFourWarps,
                             [](bool faulty) { ptx::named_barrier_sync(1, faulty ? 120 : 128); });
}

TEST(Block, BarrierThatThereIsNot) {
  expect_fault_only_in_first(Fault::barrier_misused, kFourWarps,
                             [](bool faulty) { ptx::named_barrier_sync(faulty ? 16 : 15, 128); });
}

// Half of the threads arrive, the others wait: the barrier orders earlier writes.
TEST(Block, ArrivalWithoutWaiting) {
  expect_fault_only_in_first(Fault::race, kFourWarps, [](bool faulty) {
    int* const shared = shared_array<int>();
    if (thread() < 64) {
      if (faulty) ptx::named_barrier_arrive(4, 128);
      shared[thread()] = thread();
      if (!faulty) ptx::named_barrier_arrive(4, 128);
    } else {
      ptx::named_barrier_sync(4, 128);
      if (shared[thread() - 64] == 200) __trap();
    }
  });
}

// Two halves, each with its own barrier id.
TEST(Block, BarriersOfOneNumberMix) {
  expect_fault_only_in_first(Fault::race, kFourWarps, [](bool faulty) {
    int* const shared = shared_array<int>();
    const int half = thread() / 64;
    shared[thread()] = 1;
    ptx::named_barrier_sync(1 + half, 64);
    if (shared[thread() ^ (faulty ? 64 : 32)] == 2) __trap();
  });
}

TEST(Block, ConditionOfAnyThread) {
  expect_clean(kFourWarps, [] {
    if (__syncthreads_or(thread() == 77 ? 4 : 0) != 1) __trap();
    if (__syncthreads_or(0) != 0) __trap();
    if (ptx::named_barrier_or(5, 128, thread() == 3) != true) __trap();
    if (ptx::named_barrier_or(5, 128, false) != false) __trap();
  });
}

TEST(Block, ThreadsThatHaveLeftAreNotAwaited) {
  expect_clean(kFourWarps, [] {
    if (thread() < 32) return;
    __syncthreads();
    __syncthreads();
  });
}

TEST(Block, Trap) {
  expect_fault_only_in_first(Fault::trap, kFourWarps, [](bool faulty) {
    if (faulty && thread() == 99) __trap();
  });
}

// 512 threads start with 128 registers each: 65536 in all.
constexpr LaunchOptions kFourWarpgroups{.grid = {1}, .block = {512}};

TEST(Registers, NobodyGivesBackWhatOthersTake) {
  expect_fault_only_in_first(Fault::deadlock, kFourWarpgroups, [](bool faulty) {
    if (thread() < 128) {
      if (!faulty) ptx::release_registers<40>();
    } else if (thread() < 256) {
      ptx::acquire_registers<216>();
    }
  });
}

TEST(Registers, MoreThanTheFileHas) {
  expect_fault_only_in_first(Fault::deadlock, kFourWarpgroups, [](bool faulty) {
    if (thread() < 128) {
      ptx::release_registers<24>();
    } else if (faulty) {
      ptx::acquire_registers<168>();
    } else {
      ptx::acquire_registers<160>();
    }
  });
}

TEST(Registers, ReleaseThatTakes) {
  expect_fault_only_in_first(Fault::register_count_misused, kFourWarpgroups, [](bool faulty) {
    if (thread() >= 128) return;
    if (faulty) {
      ptx::release_registers<136>();
    } else {
      ptx::release_registers<120>();
    }
  });
}

TEST(Grid, EveryBlockRunsOnce) {
  for (const Policy& policy : policies()) {
    static int runs[24];
    std::fill(std::begin(runs), std::end(runs), 0);
    run({.grid = {2, 3, 4}, .block = {32}}, policy, [] {
      if (threadIdx.x == 0) ++runs[blockIdx.x + 2 * (blockIdx.y + 3 * blockIdx.z)];
    });
    for (const int count : runs) EXPECT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace flashcore::sim
