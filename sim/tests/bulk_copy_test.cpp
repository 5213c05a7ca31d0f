// Copies and sums of contiguous bytes, and blocks that take turns.
#include "cuda/ptx/bulk_copy.cuh"

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/turns.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}, .shared_bytes = 4096};
constexpr int kFloats = 256;
constexpr uint32_t kBytes = kFloats * sizeof(float);

int thread() { return static_cast<int>(threadIdx.x); }

// Numbers in global memory, and a counter.
class BulkCopy : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaMalloc(&numbers_, kBytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&counter_, sizeof(uint32_t)), cudaSuccess);
    clear();
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(numbers_), cudaSuccess);
    EXPECT_EQ(cudaFree(counter_), cudaSuccess);
  }
  void clear() {
    std::vector<float> numbers(kFloats);
    for (int i = 0; i < kFloats; ++i) numbers[static_cast<size_t>(i)] = static_cast<float>(i);
    const uint32_t zero = 0;
    ASSERT_EQ(cudaMemcpy(numbers_, numbers.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(counter_, &zero, sizeof zero, cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<float> numbers() const {
    std::vector<float> numbers(kFloats);
    EXPECT_EQ(cudaMemcpy(numbers.data(), numbers_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return numbers;
  }

  // Loads the numbers and adds them to themselves, through shared memory.
  void load_and_add(bool waits, bool fences, bool awaits) const {
    auto* const shared = shared_array<float>();
    auto* const barriers = reinterpret_cast<uint64_t*>(shared + 2 * kFloats);
    const uint32_t barrier = ptx::shared_address(barriers);
    if (thread() == 0) {
      ptx::mbarrier_init(barrier, 1);
      ptx::mbarrier_init_fence();
      ptx::mbarrier_arrive_expect(barrier, kBytes);
      ptx::bulk_load(ptx::shared_address(shared), numbers_, kBytes, barrier);
    }
    __syncwarp();
    if (waits) ptx::mbarrier_wait(barrier, 0);
    for (int i = thread(); i < kFloats; i += 32) shared[kFloats + i] = load(shared[i]);
    if (fences) ptx::fence_proxy_async();
    __syncwarp();
    if (thread() == 0) {
      ptx::bulk_add_f32(numbers_, ptx::shared_address(shared + kFloats), kBytes);
      ptx::tma_store_commit();
      if (awaits) ptx::bulk_wait<0>();
    }
    if (!waits) ptx::mbarrier_wait(barrier, 0);
  }

  float* numbers_ = nullptr;
  uint32_t* counter_ = nullptr;
};

TEST_F(BulkCopy, NumbersAreLoadedAndAdded) {
  for (const Policy& policy : policies()) {
    clear();
    EXPECT_EQ(run(kOneWarp, policy, [this] { load_and_add(true, true, true); }).text(), "");
    const std::vector<float> found = numbers();
    for (int i = 0; i < kFloats; ++i) {
      ASSERT_EQ(found[static_cast<size_t>(i)], static_cast<float>(2 * i)) << text_of(policy);
    }
  }
}

TEST_F(BulkCopy, Faults) {
  expect_one_of({Fault::read_of_unwritten_bytes, Fault::race, Fault::read_of_bytes_in_flight},
                kOneWarp, [this] { load_and_add(false, true, true); });
  expect_fault(Fault::missing_proxy_fence, kOneWarp, [this] { load_and_add(true, false, true); });
  expect_fault(Fault::left_with_stores_unread, kOneWarp,
               [this] { load_and_add(true, true, false); });
}

TEST_F(BulkCopy, AddressesAreMultiplesOf16) {
  expect_fault_only_in_first(Fault::misaligned_copy, kOneWarp, [this](bool faulty) {
    auto* const shared = shared_array<float>();
    shared[thread()] = 1;
    ptx::fence_proxy_async();
    __syncwarp();
    if (thread() != 0) return;
    ptx::bulk_add_f32(numbers_ + (faulty ? 1 : 0), ptx::shared_address(shared), 128);
    ptx::tma_store_commit();
    ptx::bulk_wait<0>();
  });
}

TEST_F(BulkCopy, NumbersAreStored) {
  for (const Policy& policy : policies()) {
    clear();
    const Findings findings = run(kOneWarp, policy, [this] {
      auto* const shared = shared_array<float>();
      shared[thread()] = static_cast<float>(-thread());
      ptx::fence_proxy_async();
      __syncwarp();
      const float x[4] = {0.5F, 1, 2, 4};
      if (thread() == 1) ptx::add_or_store_f32x4(numbers_ + 64, x, true);
      if (thread() == 2) ptx::add_or_store_f32x4(numbers_ + 68, x, false);
      if (thread() != 0) return;
      ptx::bulk_store(numbers_ + 32, ptx::shared_address(shared), 128);
      ptx::tma_store_commit();
      ptx::bulk_wait<0>();
    });
    EXPECT_EQ(findings.text(), "") << text_of(policy);
    EXPECT_EQ(numbers()[31], 31);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(numbers()[static_cast<size_t>(32 + i)], -i);
    EXPECT_EQ(numbers()[65], 1);
    EXPECT_EQ(numbers()[71], 71 + 4);
  }
}

// A store that has read its source need not have written.
TEST_F(BulkCopy, OwnStoreIsReadAfterItHasWritten) {
  float found = 0;
  const auto kernel = [&](bool faulty) {
    auto* const shared = shared_array<float>();
    shared[thread()] = 77;
    ptx::fence_proxy_async();
    __syncwarp();
    if (thread() != 0) return;
    ptx::bulk_store(numbers_, ptx::shared_address(shared), 128);
    ptx::tma_store_commit();
    if (faulty) {
      ptx::tma_store_wait_read<0>();
    } else {
      ptx::bulk_wait<0>();
    }
    found = *static_cast<volatile float*>(numbers_ + 5);
  };
  expect_fault_only_in_first(Fault::race, kOneWarp, kernel);
  clear();
  run(kOneWarp, {.completion = Completion::late}, [&] { kernel(true); });
  EXPECT_EQ(found, 5);
  EXPECT_EQ(numbers()[5], 77);
}

TEST_F(BulkCopy, OtherBlocksReadAStoreThatHasWritten) {
  const LaunchOptions two{.grid = {2}, .block = {32}, .shared_bytes = 4096};
  for (const bool faulty : {true, false}) {
    for (const Policy& policy : policies()) {
      clear();
      float found = 0;
      const Findings findings = run(two, policy, [&] {
        auto* const shared = shared_array<float>();
        shared[thread()] = 77;
        ptx::fence_proxy_async();
        __syncwarp();
        if (thread() != 0) return;
        ptx::wait_for_turn(counter_, blockIdx.x);
        if (blockIdx.x == 1) {
          found = *static_cast<volatile float*>(numbers_ + 5);
          return;
        }
        ptx::bulk_store(numbers_, ptx::shared_address(shared), 128);
        ptx::tma_store_commit();
        ptx::tma_store_wait_read<0>();
        if (!faulty) ptx::bulk_wait<0>();
        ptx::count_turn(counter_);
      });
      EXPECT_EQ(findings.has(Fault::race), faulty) << text_of(policy) << findings.text();
      EXPECT_TRUE(faulty || findings.empty()) << text_of(policy) << findings.text();
      EXPECT_TRUE(faulty || found == 77) << text_of(policy);
    }
  }
}

// Blocks add in the order of their indices, in any order of execution; all lanes poll.
TEST_F(BulkCopy, BlocksTakeTurns) {
  const LaunchOptions two{.grid = {2}, .block = {32}, .shared_bytes = 4096};
  for (const Policy& policy : policies()) {
    clear();
    const Findings findings = run(two, policy, [this] {
      const float x[4] = {0.5F, 1, 2, 4};
      ptx::wait_for_turn(counter_, blockIdx.x);
      if (thread() < 2) ptx::add_f32x4(numbers_ + 4 * thread(), x);
      ptx::fence_gpu();
      __syncwarp();
      if (thread() == 0) ptx::count_turn(counter_);
    });
    EXPECT_EQ(findings.text(), "") << text_of(policy);
    EXPECT_EQ(numbers()[0], 1) << text_of(policy);
    EXPECT_EQ(numbers()[7], 7 + 8) << text_of(policy);
  }
}

}  // namespace
}  // namespace flashcore::sim
