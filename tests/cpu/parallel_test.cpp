// The loop over tasks: each task once, errors, concurrent callers, nested loops, and after a fork.
#include "cpu/parallel.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace flashcore::cpu {
namespace {

int64_t sum_of(int64_t count, int threads) {
  std::atomic<int64_t> sum{0};
  parallel_for(count, threads, [&](int64_t i) { sum += i + 1; });
  return sum;
}

TEST(ParallelFor, CallsEachTaskOnce) {
  for (const int threads : {0, 1, 2, 3, 17}) {
    for (const int64_t count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      parallel_for(count, threads, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const auto& called : calls) EXPECT_EQ(called, 1);
    }
  }
}

TEST(ParallelFor, UsesSeveralThreads) {
  // Each task waits until the other has begun: a single thread would never finish.
  std::atomic<int> begun{0};
  parallel_for(2, 2, [&](int64_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 2);
}

TEST(ParallelFor, ThrowsTheFirstErrorInTheCaller) {
  for (const int threads : {1, 4}) {
    EXPECT_THROW(parallel_for(100, threads,
                              [](int64_t i) {
                                if (i == 7) throw std::runtime_error("seven");
                              }),
                 std::runtime_error);
    EXPECT_EQ(sum_of(10, threads), 55);
  }
}

TEST(ParallelFor, ManyCallersAtOnce) {
  std::vector<std::jthread> callers;
  std::atomic<int> right{0};
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 50; ++repeat) right += sum_of(20, 4) == 210;
    });
  }
  callers.clear();
  EXPECT_EQ(right, 400);
}

TEST(ParallelFor, LoopsWithinLoops) {
  std::atomic<int64_t> sum{0};
  parallel_for(6, 3, [&](int64_t) { sum += sum_of(10, 3); });
  EXPECT_EQ(sum, 6 * 55);
}

TEST(ParallelFor, WorksInAForkedChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a forked child that starts threads";
#endif
  ASSERT_EQ(sum_of(100, 4), 5050);  // creates the parent's threads
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(sum_of(100, 4) == 5050 && sum_of(10, 4) == 55 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace flashcore::cpu
