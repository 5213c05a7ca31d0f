// cp.async: groups, waits, and which thread may read what and when.
#include "cuda/ptx/cp_async.cuh"

#include <cuda_runtime.h>

#include <numeric>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kTwoWarps{.grid = {1}, .block = {64}, .shared_bytes = 8192};

int thread() { return static_cast<int>(threadIdx.x); }

class CpAsync : public testing::Test {
 protected:
  CpAsync() { std::iota(std::begin(source), std::end(source), 1); }
  alignas(16) static inline int source[1024];
  static int4* pieces() { return shared_array<int4>(); }
  static const int4* from() { return reinterpret_cast<const int4*>(source); }
  static void copy(int to, int piece) { ptx::cp_async_16(pieces() + to, from() + piece); }
  static void expect_piece(int at, int piece) {
    if (load(pieces()[at].x) != 4 * piece + 1) __trap();
  }
};

TEST_F(CpAsync, OwnCopyIsReadAfterTheWait) {
  expect_fault_only_in_first(Fault::read_of_bytes_in_flight, kTwoWarps, [](bool faulty) {
    copy(thread(), thread());
    ptx::cp_async_commit();
    if (!faulty) ptx::cp_async_wait<0>();
    if (load(pieces()[thread()].x) != 4 * thread() + 1 && !faulty) __trap();
    if (faulty) ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, AtomicOperationBeforeTheWait) {
  expect_fault_only_in_first(Fault::write_to_bytes_in_flight, kTwoWarps, [](bool faulty) {
    copy(thread(), thread());
    ptx::cp_async_commit();
    if (!faulty) ptx::cp_async_wait<0>();
    atomicAdd(&pieces()[thread()].x, 1);
    if (faulty) ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, TooFewGroupsAwaited) {
  expect_fault_only_in_first(Fault::read_of_bytes_in_flight, kTwoWarps, [](bool faulty) {
    for (int group = 0; group < 2; ++group) {
      copy(64 * group + thread(), thread() + group);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<1>();
    expect_piece(thread(), thread());
    if (!faulty) ptx::cp_async_wait<0>();
    if (load(pieces()[64 + thread()].x) != 4 * thread() + 5 && !faulty) __trap();
    ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, CommitForgotten) {
  expect_fault_only_in_first(Fault::read_of_bytes_in_flight, kTwoWarps, [](bool faulty) {
    copy(thread(), thread());
    if (!faulty) ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    if (load(pieces()[thread()].x) < 0) __trap();
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  });
}

// The wait is for the thread's own copies; a barrier shows them to the others.
TEST_F(CpAsync, BarrierAfterTheWaitForgotten) {
  expect_one_of({Fault::race, Fault::read_of_bytes_in_flight, Fault::read_of_unwritten_bytes},
                kTwoWarps, [] {
                  copy(thread(), thread());
                  ptx::cp_async_commit();
                  ptx::cp_async_wait<0>();
                  __syncwarp();
                  if (load(pieces()[63 - thread()].x) == -1) __trap();
                });
  expect_clean(kTwoWarps, [] {
    copy(thread(), thread());
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
    expect_piece(63 - thread(), 63 - thread());
  });
}

// Two stages: the next copy may start when all have read the stage.
TEST_F(CpAsync, NextCopyBeforeAllHaveRead) {
  expect_fault_only_in_first(Fault::race, kTwoWarps, [](bool faulty) {
    for (int tile = 0; tile < 4; ++tile) {
      copy(thread(), thread() + 8 * tile);
      ptx::cp_async_commit();
      ptx::cp_async_wait<0>();
      __syncthreads();
      if (load(pieces()[63 - thread()].x) != 4 * (63 - thread() + 8 * tile) + 1 && !faulty) {
        __trap();
      }
      if (!faulty) __syncthreads();
    }
  });
}

TEST_F(CpAsync, StoreToBytesInFlight) {
  expect_fault_only_in_first(Fault::write_to_bytes_in_flight, kTwoWarps, [](bool faulty) {
    copy(thread(), thread());
    ptx::cp_async_commit();
    if (!faulty) ptx::cp_async_wait<0>();
    pieces()[thread()].y = 1;
    ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, TwoCopiesToOnePlace) {
  expect_fault_only_in_first(Fault::write_to_bytes_in_flight, kTwoWarps, [](bool faulty) {
    copy(thread(), thread());
    copy(faulty ? thread() : 64 + thread(), thread() + 1);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, LeftInFlight) {
  expect_fault_only_in_first(Fault::left_with_copies_in_flight, kTwoWarps, [](bool faulty) {
    copy(thread(), thread());
    ptx::cp_async_commit();
    if (!faulty) ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, MisalignedSource) {
  expect_fault_only_in_first(Fault::misaligned_copy, kTwoWarps, [](bool faulty) {
    ptx::cp_async_16(pieces() + thread(), source + (faulty ? 1 : 4));
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  });
}

TEST_F(CpAsync, BothLinesAreNamed) {
  static int copies = 0, reads = 0;
  const Findings findings = run(kTwoWarps, {}, [] {
    ptx::cp_async_16(pieces() + thread(), from()), copies = __LINE__;
    const int x = (reads = __LINE__, load(pieces()[thread()].x));
    if (x == 77) __trap();
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  });
  EXPECT_THAT(findings.text(), testing::HasSubstr("cp_async_test.cpp:" + std::to_string(copies)));
  EXPECT_THAT(findings.text(), testing::HasSubstr("read of bytes in flight: "));
  EXPECT_GT(reads, 0);
}

TEST_F(CpAsync, InvalidSourceGivesZeros) {
  expect_clean(kTwoWarps, [] {
    ptx::cp_async_16(pieces() + thread(), from() + thread(), thread() % 2 == 0);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    if (load(pieces()[thread()].x) != (thread() % 2 == 0 ? 4 * thread() + 1 : 0)) __trap();
  });
}

// Each thread arrives when its copies have landed; a thread that waits for the barrier reads them all.
TEST_F(CpAsync, ArrivalAtAnMbarrier) {
  const auto kernel = [](bool faulty) {
    const uint32_t barrier = ptx::shared_address(pieces() + 128);
    if (thread() == 0) {
      ptx::mbarrier_init(barrier, 64);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
    copy(thread(), thread());
    ptx::cp_async_arrive(barrier);
    if (!faulty) ptx::mbarrier_wait(barrier, 0);
    if (load(pieces()[63 - thread()].x) != 4 * (63 - thread()) + 1 && !faulty) __trap();
    if (faulty) ptx::mbarrier_wait(barrier, 0);
  };
  expect_clean(kTwoWarps, [&] { kernel(false); });
  expect_one_of({Fault::read_of_bytes_in_flight, Fault::race, Fault::read_of_unwritten_bytes},
                kTwoWarps, [&] { kernel(true); });
}

}  // namespace
}  // namespace flashcore::sim
