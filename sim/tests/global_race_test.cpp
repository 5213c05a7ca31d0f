// Races in global memory, and the order of accesses between threads, blocks and grids.
#include <cuda_runtime.h>

#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/load_acquire.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}};
constexpr LaunchOptions kOneBlock{.grid = {1}, .block = {128}};
constexpr LaunchOptions kTwoBlocks{.grid = {2}, .block = {32}};
constexpr int kInts = 256;
using Counter = unsigned long long;

int thread() { return static_cast<int>(threadIdx.x); }
template <class T>
void store(T& to, T x) {
  *static_cast<volatile T*>(&to) = x;
}

class GlobalRace : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaMalloc(&memory_, kInts * sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&counters_, 2 * sizeof(Counter)), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaFree(counters_), cudaSuccess);
  }
  // Runs kernel(has the fault) with and without the fault, from counters of 0.
  template <class Kernel>
  void expect_race_only_in_first(const LaunchOptions& options, Kernel kernel) {
    for (const bool faulty : {true, false}) {
      for (const Policy& policy : policies()) {
        ASSERT_EQ(cudaMemset(counters_, 0, 2 * sizeof(Counter)), cudaSuccess);
        const Findings findings = run(options, policy, [&] { kernel(faulty); });
        EXPECT_EQ(findings.has(Fault::race), faulty) << text_of(policy) << "\n" << findings.text();
        EXPECT_TRUE(faulty || findings.empty()) << text_of(policy) << "\n" << findings.text();
      }
    }
  }

  int* memory_ = nullptr;
  Counter* counters_ = nullptr;
};

// The second line is ordered after the first only if the warp has synchronised.
TEST_F(GlobalRace, StoredTwiceByDifferentLanes) {
  expect_race_only_in_first(kOneWarp, [this](bool faulty) {
    store(memory_[thread()], 1);
    if (!faulty) __syncwarp();
    store(memory_[31 - thread()], 2);
  });
}

TEST_F(GlobalRace, LanesThatWriteDifferentValuesAtOneLine) {
  expect_race_only_in_first(kOneWarp,
                            [this](bool faulty) { store(memory_[0], faulty ? thread() : 7); });
}

TEST_F(GlobalRace, HalvesOfAWordHaveTheirOwnWriters) {
  expect_race_only_in_first(kOneWarp, [this](bool faulty) {
    auto* const halves = reinterpret_cast<short*>(memory_);
    store(halves[thread()], static_cast<short>(1));
    if (faulty && thread() == 3) store(halves[6], static_cast<short>(2));
  });
}

TEST_F(GlobalRace, ReadOfWhatAnotherThreadWrites) {
  expect_race_only_in_first(kOneBlock, [this](bool faulty) {
    store(memory_[thread()], 1);
    if (!faulty) __syncthreads();
    load(memory_[(thread() + 32) % 128]);
    if (!faulty) __syncthreads();
    store(memory_[thread()], 2);
  });
}

TEST_F(GlobalRace, BlocksThatWriteOneWord) {
  expect_race_only_in_first(kTwoBlocks, [this](bool faulty) {
    const int place = static_cast<int>(blockIdx.x) * 32 + thread();
    store(memory_[faulty ? thread() : place], thread());
  });
}

enum class Chain { whole, no_fence_of_the_writer, no_fence_of_the_reader, no_atomic };

// Each block writes its part; the block that counts second reads both.
void last_block_reads_all(int* memory, Counter* counters, Chain chain) {
  store(memory[static_cast<int>(blockIdx.x) * 32 + thread()], 1);
  __syncwarp();
  Counter before = 0;
  if (thread() == 0) {
    if (chain != Chain::no_fence_of_the_writer) __threadfence();
    before = atomicAdd(&counters[chain == Chain::no_atomic ? blockIdx.x : 0], 1);
    if (chain == Chain::no_atomic) before = 1;
    if (chain != Chain::no_fence_of_the_reader) __threadfence();
  }
  before = __shfl_sync(kAllLanes, static_cast<int>(before), 0) != 0 ? 1 : 0;
  __syncwarp();
  if (before == 0) return;
  load(memory[thread()]);
  load(memory[32 + thread()]);
}

TEST_F(GlobalRace, LastBlockReadsAll) {
  for (const Chain chain :
       {Chain::no_fence_of_the_writer, Chain::no_fence_of_the_reader, Chain::no_atomic}) {
    expect_race_only_in_first(kTwoBlocks, [&](bool faulty) {
      last_block_reads_all(memory_, counters_, faulty ? chain : Chain::whole);
    });
  }
}

// A block waits for another's write, with acquire loads.
TEST_F(GlobalRace, LoadThatAcquires) {
  expect_race_only_in_first(kTwoBlocks, [this](bool faulty) {
    if (thread() != 0) return;
    if (blockIdx.x == 0) {
      store(memory_[0], 1);
      if (!faulty) __threadfence();
      atomicExch(&counters_[0], 1ULL);
    } else {
      while (ptx::load_acquire(&counters_[0]) == 0) {
      }
      load(memory_[0]);
    }
  });
}

TEST_F(GlobalRace, AtomicOperationsDoNotRaceButStoresDo) {
  expect_race_only_in_first(kTwoBlocks, [this](bool faulty) {
    if (thread() != 0) return;
    if (faulty && blockIdx.x == 1) {
      store(counters_[0], Counter{5});
    } else {
      atomicAdd(&counters_[0], 1ULL);
    }
  });
}

// The second grid starts while the first still writes.
TEST_F(GlobalRace, GridThatStartsEarly) {
  for (const bool faulty : {true, false}) {
    int found = 0;
    for (const Policy& policy : policies()) {
      Simulator simulator(policy);
      simulator.launch(kOneWarp, [this] {
        ptx::start_next_grid();
        store(memory_[thread()], 1);
      });
      LaunchOptions early = kOneWarp;
      early.starts_early = true;
      simulator.launch(early, [&] {
        if (!faulty) ptx::wait_for_earlier_grids();
        load(memory_[thread()]);
        if (faulty) ptx::wait_for_earlier_grids();
      });
      simulator.synchronize();
      found += simulator.findings().has(Fault::race) ? 1 : 0;
      EXPECT_TRUE(faulty || simulator.findings().empty()) << simulator.findings().text();
    }
    EXPECT_EQ(found > 0, faulty);  // if it wrote before the other read
  }
}

}  // namespace
}  // namespace flashcore::sim
