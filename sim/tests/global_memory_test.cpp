// Global memory: every access lies inside of one allocation, and is aligned.
#include <cuda_runtime.h>

#include "cuda/ptx/cp_async.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}, .shared_bytes = 4096};
constexpr int kInts = 100;

int thread() { return static_cast<int>(threadIdx.x); }

// 100 ints of global memory.
class GlobalMemory : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaMalloc(&memory_, kInts * sizeof(int)), cudaSuccess); }
  void TearDown() override { EXPECT_EQ(cudaFree(memory_), cudaSuccess); }

  int* memory_ = nullptr;
};

TEST_F(GlobalMemory, StoreBehindTheEnd) {
  expect_fault_only_in_first(Fault::outside_global_memory, kOneWarp, [this](bool faulty) {
    const_cast<volatile int*>(memory_)[kInts - 32 + thread() + (faulty ? 1 : 0)] = 0;
  });
}

TEST_F(GlobalMemory, LoadBeforeTheStart) {
  expect_fault_only_in_first(Fault::outside_global_memory, kOneWarp,
                             [this](bool faulty) { load(memory_[faulty ? -1 : 0]); });
}

TEST_F(GlobalMemory, LoadAfterItWasGivenBack) {
  void* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, 4), cudaSuccess);
  ASSERT_EQ(cudaFree(other), cudaSuccess);
  expect_fault(Fault::outside_global_memory, kOneWarp,
               [other] { load(*static_cast<const int*>(other)); });
}

TEST_F(GlobalMemory, WideLoadThatIsNotAligned) {
  expect_fault_only_in_first(Fault::misaligned_access, kOneWarp, [this](bool faulty) {
    load(*reinterpret_cast<const long*>(memory_ + (faulty ? 1 : 2)));
  });
}

TEST_F(GlobalMemory, CopyBehindTheEnd) {
  expect_fault_only_in_first(Fault::outside_global_memory, kOneWarp, [this](bool faulty) {
    if (thread() != 0) return;
    ptx::cp_async_16(shared_array<int>(), memory_ + (faulty ? kInts : kInts - 4));
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  });
}

TEST_F(GlobalMemory, WhatIsNotGivenIsNotTakenBack) {
  EXPECT_EQ(cudaFree(memory_ + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(GlobalMemory, CopiesOfTheHostStayInside) {
  int ints[kInts + 1] = {};
  EXPECT_EQ(cudaMemcpy(memory_, ints, sizeof ints, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(ints, memory_, sizeof ints, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(memory_, ints, kInts * sizeof(int), cudaMemcpyHostToDevice), cudaSuccess);
  (void)cudaGetLastError();
}

}  // namespace
}  // namespace flashcore::sim
