// Many threads plan and run at once, random problems on any kernel of the CPU, and get the bits that one thread gets.
// FLASHCORE_TEST_SOAK_SECONDS: how long; before a release, ten minutes under the thread sanitizer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "flashcore/flashcore.hpp"
#include "tests/cpu/judge.hpp"

namespace flashcore {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kThreads = 24;

struct Soaked {
  bench::HostProblem wanted;
  PlanOptions options;
};

// What the default kernel and the reference compute, alone.
std::vector<Soaked> problems() {
  std::vector<Soaked> all;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const bench::HostProblem host =
        bench::random_problem(seed, {.largest_seqlen = 64, .caches = seed % 3 == 0});
    for (const char* const kernel : {"", "cpu_simd", "reference"}) {
      Soaked one{host, testing::on_kernel(kernel, 1)};
      if (testing::run_on_host(one.wanted, one.options).ok()) all.push_back(std::move(one));
    }
  }
  return all;
}

TEST(ManyThreads, PlanAndRunAtOnce) {
  const char* const asked = std::getenv("FLASHCORE_TEST_SOAK_SECONDS");
  const std::chrono::duration<double> time(asked == nullptr ? 1.0 : std::strtod(asked, nullptr));
  const std::vector<Soaked> all = problems();
  ASSERT_GT(all.size(), 24U);
  std::atomic<int64_t> runs = 0, wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t, end = Clock::now() + time] {
        bench::Random random(static_cast<uint64_t>(t));
        do {
          const Soaked& one =
              all[static_cast<size_t>(random.integer(0, static_cast<int64_t>(all.size()) - 1))];
          bench::HostProblem host = one.wanted;
          bench::poison_outputs(host);
          PlanOptions options = one.options;
          options.threads = static_cast<int>(random.integer(1, 3));
          bool is_right = testing::run_on_host(host, options).ok() && !devices().empty();
          for (const auto& [name, tensor] : one.wanted.tensors) {
            if (bench::is_output(name)) is_right &= host.at(name).same_elements(tensor);
          }
          ++runs;
          if (!is_right) ++wrong;
        } while (Clock::now() < end);
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(runs, kThreads);
  RecordProperty("runs", std::to_string(runs));
  fmt::print("{} threads, {} runs\n", kThreads, runs.load());
}

}  // namespace
}  // namespace flashcore
