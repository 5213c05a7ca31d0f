// Ordinary accesses of shared memory: races, unwritten bytes, bounds, alignment, bank conflicts.
#include "cuda/ptx/shared_memory.cuh"

#include <cuda_runtime.h>

#include <array>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/unwritten.cuh"
#include "engine/bank_conflicts.hpp"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kTwoWarps{.grid = {1}, .block = {64}, .shared_bytes = 4096};
constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}, .shared_bytes = 4096};

int thread() { return static_cast<int>(threadIdx.x); }

TEST(SharedMemory, ReadBeforeTheBarrierOfTheBlock) {
  expect_fault_only_in_first(Fault::race, kTwoWarps, [](bool faulty) {
    int* const shared = shared_array<int>();
    shared[thread()] = thread();
    if (!faulty) __syncthreads();
    if (faulty) __syncwarp();
    const int other = load(shared[(thread() + 32) % 64]);
    if (!faulty && other != (thread() + 32) % 64) __trap();
  });
}

TEST(SharedMemory, ReadBeforeTheBarrierOfTheWarp) {
  expect_fault_only_in_first(Fault::race, kOneWarp, [](bool faulty) {
    int* const shared = shared_array<int>();
    shared[thread()] = thread();
    if (!faulty) __syncwarp();
    const int other = load(shared[31 - thread()]);
    if (!faulty && other != 31 - thread()) __trap();
  });
}

TEST(SharedMemory, OverwrittenBeforeAllHaveRead) {
  expect_fault_only_in_first(Fault::race, kTwoWarps, [](bool faulty) {
    int* const shared = shared_array<int>();
    if (thread() == 0) shared[0] = 1;
    __syncthreads();
    const int seen = load(shared[0]);
    if (!faulty) __syncthreads();
    if (thread() == 40) shared[0] = 2 + seen;
  });
}

TEST(SharedMemory, WrittenByTwo) {
  expect_fault_only_in_first(Fault::race, kTwoWarps, [](bool faulty) {
    int* const shared = shared_array<int>();
    shared[faulty ? thread() % 32 : thread()] = 1;
  });
}

// A sum by atomic operations, which barriers must order with the stores and the load around it.
enum class Sum { whole, zero_comes_late, read_early, reset_early, without_zero };

void count_threads(Sum sum) {
  int* const shared = shared_array<int>();
  if (thread() == 40 && sum != Sum::without_zero) shared[0] = 0;
  if (sum != Sum::zero_comes_late) __syncthreads();
  atomicAdd(&shared[0], 1);
  if (sum != Sum::read_early && sum != Sum::reset_early) __syncthreads();
  if (thread() != 20) return;
  if (sum == Sum::reset_early) {
    shared[0] = 0;
  } else if (load(shared[0]) != 64 && sum == Sum::whole) {
    __trap();
  }
}

TEST(SharedMemory, AtomicOperationsDoNotRaceButOrdinaryAccessesDo) {
  expect_clean(kTwoWarps, [] { count_threads(Sum::whole); });
  for (const Sum sum : {Sum::zero_comes_late, Sum::read_early, Sum::reset_early}) {
    expect_fault(Fault::race, kTwoWarps, [&] { count_threads(sum); });
  }
}

TEST(SharedMemory, AtomicOperationOnWhatNobodyWrote) {
  expect_fault(Fault::read_of_unwritten_bytes, kTwoWarps, [] { count_threads(Sum::without_zero); });
}

// The reading thread knows of its warp's operation, but not of the other warp's earlier one.
TEST(SharedMemory, EachAtomicOperationIsOrdered) {
  for (const int reading_warp : {0, 1}) {
    expect_fault_only_in_first(Fault::race, kTwoWarps, [&](bool faulty) {
      int* const shared = shared_array<int>();
      const int warp = thread() / 32, lane = thread() % 32;
      if (thread() == 0) shared[0] = 0;
      __syncthreads();
      if (warp != reading_warp) atomicAdd(&shared[0], 1);
      if (!faulty) __syncthreads();
      if (warp == reading_warp && lane == 8) atomicAdd(&shared[0], 1);
      __syncwarp();
      if (warp == reading_warp && lane == 18) load(shared[0]);
    });
  }
}

// Neighbouring bytes of one word belong to different threads.
TEST(SharedMemory, BytesOfOneWordDoNotRace) {
  expect_clean(kTwoWarps, [] { shared_array<char>()[thread()] = 1; });
}

// A shuffle passes values and orders no memory.
TEST(SharedMemory, ShuffleIsNoBarrier) {
  expect_fault(Fault::race, kOneWarp, [] {
    int* const shared = shared_array<int>();
    shared[thread()] = thread();
    __shfl_sync(kAllLanes, thread(), 0);
    if (shared[31 - thread()] < 0) __trap();
  });
}

TEST(SharedMemory, BothLinesAreNamed) {
  static int writes = 0, reads = 0;
  const Findings findings = run(kTwoWarps, {}, [] {
    int* const shared = shared_array<int>();
    shared[thread()] = 5, writes = __LINE__;
    const int other = (reads = __LINE__, shared[63 - thread()]);
    if (other == 6) __trap();
  });
  const auto line = [](int number) {
    return testing::HasSubstr("shared_memory_test.cpp:" + std::to_string(number));
  };
  EXPECT_THAT(findings.text(), testing::AllOf(line(writes), line(reads)));
}

TEST(SharedMemory, UnwrittenBytes) {
  expect_fault_only_in_first(Fault::read_of_unwritten_bytes, kTwoWarps, [](bool faulty) {
    int* const shared = shared_array<int>();
    if (!faulty || thread() != 9) shared[thread()] = thread();
    __syncthreads();
    if (shared[63 - thread()] == 100) __trap();
  });
}

TEST(SharedMemory, BeyondTheEnd) {
  expect_fault_only_in_first(Fault::outside_shared_memory, kTwoWarps, [](bool faulty) {
    shared_array<int>()[thread() + (faulty ? 1000 : 900)] = 1;
  });
}

TEST(SharedMemory, ByAddressBeyondTheEnd) {
  expect_fault_only_in_first(Fault::outside_shared_memory, kTwoWarps, [](bool faulty) {
    const uint32_t address = ptx::shared_address(shared_array<char>());
    ptx::store_shared_x2(address + (faulty ? 3600u : 1000u) + 8 * threadIdx.x, {1, 2});
  });
}

TEST(SharedMemory, Misaligned) {
  expect_fault_only_in_first(Fault::misaligned_access, kOneWarp, [](bool faulty) {
    const uint32_t address = ptx::shared_address(shared_array<char>()) + 16 * threadIdx.x;
    ptx::store_shared_x2(address + (faulty ? 4 : 8), {1, 2});
  });
}

TEST(SharedMemory, MisalignedVector) {
  expect_fault_only_in_first(Fault::misaligned_access, kOneWarp, [](bool faulty) {
    auto* const bytes = shared_array<unsigned char>() + 32 * thread() + (faulty ? 4 : 8);
    *reinterpret_cast<volatile long*>(bytes) = 0;
  });
}

TEST(SharedMemory, MoreThanABlockCanHave) {
  LaunchOptions options = kOneWarp;
  options.shared_bytes = 227 * 1024;
  expect_clean(options, [] {});
  options.shared_bytes += 1;
  expect_fault(Fault::too_much_shared_memory, options, [] {});
}

// In CUDA, the order of lanes' stores of one instruction
// is undefined; with equal values, it does not matter.
TEST(SharedMemory, LanesOfAWarpAgree) {
  expect_fault_only_in_first(Fault::race, kOneWarp, [](bool faulty) {
    int* const shared = shared_array<int>();
    shared[thread() / 4] = faulty ? thread() : thread() / 4;
    __syncwarp();
    load(shared[thread() % 8]);
  });
}

TEST(SharedMemory, WarpsDoNotAgree) {
  expect_fault(Fault::race, kTwoWarps, [] { shared_array<int>()[0] = 1; });
}

TEST(SharedMemory, WhatNothingDependsOnMayBeUnwritten) {
  expect_fault_only_in_first(Fault::read_of_unwritten_bytes, kOneWarp, [](bool faulty) {
    const int& unwritten = shared_array<int>()[thread()];
    if (!faulty) ptx::may_be_unwritten(unwritten);
    load(unwritten);
  });
}

TEST(SharedMemory, AStaticObjectIsTheBlocksOwn) {
  constexpr LaunchOptions kTwoBlocks{.grid = {2}, .block = {64}, .shared_bytes = 100};
  expect_fault_only_in_first(Fault::race, kTwoBlocks, [](bool faulty) {
    auto& first = ptx::static_shared<std::array<int, 64>>();
    auto& second = ptx::static_shared<double, 32>();
    if (reinterpret_cast<uintptr_t>(&second) % 32 != 0) __trap();
    if (thread() == 0) second = blockIdx.x;
    first[static_cast<size_t>(thread())] = thread();
    if (!faulty) __syncthreads();
    if (load(first[static_cast<size_t>(63 - thread())]) != 63 - thread() && !faulty) __trap();
    if (!faulty && load(second) != blockIdx.x) __trap();
  });
}

TEST(SharedMemory, AStaticObjectHasBounds) {
  expect_fault_only_in_first(Fault::outside_shared_memory, kOneWarp, [](bool faulty) {
    auto& last = ptx::static_shared<std::array<int, 32>>();
    *const_cast<volatile int*>(last.data() + thread() + (faulty ? 1 : 0)) = 0;
  });
}

TEST(SharedMemory, AStaticObjectIsReadUnwritten) {
  expect_fault(Fault::read_of_unwritten_bytes, kOneWarp,
               [] { load(ptx::static_shared<std::array<int, 32>>()[0]); });
}

TEST(SharedMemory, StaticObjectsBeyondWhatABlockCanHave) {
  expect_fault_only_in_first(Fault::too_much_shared_memory, kOneWarp, [](bool faulty) {
    if (faulty) {
      ptx::static_shared<std::array<char, 48 * 1024 + 1>>();
    } else {
      ptx::static_shared<std::array<char, 48 * 1024>>();
    }
  });
}

TEST(SharedMemory, OtherMemoryHasNoSharedAddress) {
  static int elsewhere;
  expect_fault_only_in_first(Fault::not_shared_memory, kOneWarp, [](bool faulty) {
    if (faulty) {
      ptx::shared_address(&elsewhere);
    } else {
      ptx::shared_address(shared_array<int>());
    }
  });
}

// ldmatrix is executed together, but orders nothing: each lane's row must be visible to it.
TEST(SharedMemory, MatrixReadBeforeTheBarrier) {
  expect_fault_only_in_first(Fault::race, kOneWarp, [](bool faulty) {
    auto* const rows = shared_array<uint4>();
    rows[31 - thread()] = make_uint4(1, 2, 3, 4);
    if (!faulty) __syncwarp();
    uint32_t r[4];
    ptx::ldmatrix_x4(r, ptx::shared_address(rows + thread()));
    if (!faulty && r[0] - 1 != threadIdx.x % 4) __trap();
  });
}

// The lanes of ldmatrix have read when all have arrived, but other lanes do not know that.
TEST(SharedMemory, OverwrittenAfterAMatrixRead) {
  expect_fault_only_in_first(Fault::race, kOneWarp, [](bool faulty) {
    auto* const rows = shared_array<uint4>();
    rows[thread()] = make_uint4(1, 2, 3, 4);
    __syncwarp();
    uint32_t r[4];
    ptx::ldmatrix_x4(r, ptx::shared_address(rows + thread()));
    if (!faulty) __syncwarp();
    rows[31 - thread()] = make_uint4(r[0], r[1], r[2], r[3]);
  });
}

TEST(SharedMemory, StoredMatricesAreLoadedAgain) {
  expect_clean(kOneWarp, [] {
    auto* const rows = shared_array<uint4>();
    const uint32_t address = ptx::shared_address(rows + thread());
    const uint32_t x = 4 * threadIdx.x;
    ptx::stmatrix_x4(address, x, x + 1, x + 2, x + 3);
    __syncwarp();
    uint32_t r[4];
    ptx::ldmatrix_x4(r, address);
    for (uint32_t i = 0; i < 4; ++i) {
      if (r[i] != x + i) __trap();
    }
  });
}

TEST(SharedMemory, TransposedMatricesAreLoadedAgain) {
  expect_clean(kOneWarp, [] {
    auto* const rows = shared_array<uint4>();
    const uint32_t address = ptx::shared_address(rows + thread());
    const uint32_t x = 4 * threadIdx.x;
    ptx::stmatrix_x4_trans(address, x, x + 1, x + 2, x + 3);
    __syncwarp();
    uint32_t r[4];
    ptx::ldmatrix_x4_trans(r, address);
    for (uint32_t i = 0; i < 4; ++i) {
      if (r[i] != x + i) __trap();
    }
  });
}

Conflicts conflicts_of(const std::function<void()>& kernel) {
  run(kOneWarp, {.count_bank_conflicts = true}, kernel);
  Conflicts sum;
  for (const auto& [site, at_line] : take_bank_conflicts()) {
    sum.cycles += at_line.cycles;
    sum.extra += at_line.extra;
  }
  return sum;
}

TEST(BankConflicts, AreCountedByTheWordsOfABank) {
  const auto column_of_stride = [](int stride) {
    return conflicts_of([=] { shared_array<int>()[stride * thread()] = 1; }).extra;
  };
  EXPECT_EQ(column_of_stride(1), 0u);
  EXPECT_EQ(column_of_stride(2), 1u);
  EXPECT_EQ(column_of_stride(32), 31u);
  EXPECT_EQ(column_of_stride(31), 0u);
}

TEST(BankConflicts, AreCountedForMatrices) {
  const auto rows_of_stride = [](int bytes) {
    return conflicts_of([=] {
      uint32_t r[4];
      ptx::ldmatrix_x4(r, ptx::shared_address(shared_array<char>() + bytes * thread()));
    });
  };
  EXPECT_EQ(rows_of_stride(16).cycles, 4u);
  EXPECT_EQ(rows_of_stride(16).extra, 0u);
  EXPECT_EQ(rows_of_stride(128).extra, 28u);
}

TEST(BankConflicts, WideAccessesTakeSeveralCycles) {
  const Conflicts wide = conflicts_of(
      [] { ptx::load_shared_x4(ptx::shared_address(shared_array<uint4>() + thread())); });
  EXPECT_EQ(wide.cycles, 4u);
  EXPECT_EQ(wide.extra, 0u);
}

}  // namespace
}  // namespace flashcore::sim
