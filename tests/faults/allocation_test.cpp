// The n-th allocation fails, for every n of a call: the call says so, and nothing that it made stays. Many calls that
// succeed keep nothing either.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.h"
#include "tests/api/c_problem.hpp"
#include "tests/faults/failing_heap.hpp"

namespace flashcore::testing {
namespace {

using tests::failing_heap;

void fails_cleanly(const std::function<flashcore_status()>& call, int64_t fewest) {
  // What is made once: threads, a device's tables.
  for (int i = 0; i < 2; ++i) ASSERT_EQ(call(), FLASHCORE_OK) << flashcore_last_error();
  int64_t n = 1;
  for (;; ++n) {
    const int64_t before = failing_heap.living;
    failing_heap.fail_at(n);
    const flashcore_status status = call();
    const bool has_failed = failing_heap.has_failed();
    const int64_t kept = failing_heap.living - before;
    EXPECT_EQ(kept, 0) << "allocation " << n;
    if (!has_failed) {
      EXPECT_EQ(status, FLASHCORE_OK) << flashcore_last_error();
      break;
    }
    ASSERT_EQ(status, FLASHCORE_OUT_OF_MEMORY) << "allocation " << n << flashcore_last_error();
    EXPECT_THAT(flashcore_last_error(), ::testing::HasSubstr("the host has no"));
  }
  EXPECT_GT(n, fewest) << "allocations";
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// A hundredth of `times`, unless the run is a long one.
void keeps_nothing(const std::function<flashcore_status()>& call, int64_t times) {
  const char* const run = std::getenv("FLASHCORE_TEST_RUN");
  if (run == nullptr || std::string_view(run) != "long") times /= 100;
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(call(), FLASHCORE_OK) << flashcore_last_error();
  const int64_t blocks = failing_heap.living, bytes = resident_bytes();
  bool is_ok = true;
  for (int64_t i = 0; i < times; ++i) is_ok &= call() == FLASHCORE_OK;
  const int64_t grown = resident_bytes() - bytes;
  EXPECT_TRUE(is_ok);
  EXPECT_EQ(failing_heap.living, blocks);
#ifndef FLASHCORE_SANITIZED  // a sanitizer keeps what was freed
  EXPECT_LT(grown, 256 * 1024) << times << " calls";
#endif
  ::testing::Test::RecordProperty("bytes", std::to_string(grown));
}

struct Allocation : ::testing::Test {
  flashcore_problem problem = small_problem();
  flashcore_plan_options options = default_options();
  SmallData data;
  flashcore_arguments arguments = data.arguments();

  flashcore_status plan_and_run() {
    flashcore_plan* plan = nullptr;
    flashcore_status status = flashcore_plan_create(&problem, &options, &plan);
    EXPECT_EQ(plan == nullptr, status != FLASHCORE_OK);
    if (status == FLASHCORE_OK) {
      status = flashcore_plan_run(plan, &arguments, nullptr, 0, nullptr);
    }
    flashcore_plan_destroy(plan);
    return status;
  }
};

TEST_F(Allocation, OfAPlanAndItsRun) {
  for (const char* const kernel : {"", "cpu_simd", "reference"}) {
    for (const int32_t threads : {1, 3}) {
      options.kernel = kernel;
      options.threads = threads;
      fails_cleanly([this] { return plan_and_run(); }, 5);
    }
  }
}

TEST_F(Allocation, OfAMillionPlansAndRuns) {
  options.threads = 2;
  keeps_nothing([this] { return plan_and_run(); }, 1'000'000);
}

TEST_F(Allocation, OfGradients) {
  ASSERT_EQ(plan_and_run(), FLASHCORE_OK) << flashcore_last_error();  // O and the LSE
  flashcore_gradients gradients;
  ASSERT_EQ(flashcore_gradients_init(&gradients, sizeof gradients), FLASHCORE_OK);
  gradients.d_o = gradients.dq = problem.q;
  gradients.dk = gradients.dv = problem.k;
  flashcore_backward_arguments backward;
  ASSERT_EQ(flashcore_backward_arguments_init(&backward, sizeof backward), FLASHCORE_OK);
  std::vector<float> d_o = data.q, dq = data.q, dk = data.k, dv = data.v;
  backward.forward = &arguments;
  backward.d_o = d_o.data();
  backward.dq = dq.data();
  backward.dk = dk.data();
  backward.dv = dv.data();
  for (const char* const kernel : {"cpu_simd", "reference"}) {
    options.kernel = kernel;
    fails_cleanly(
        [&] {
          flashcore_plan* plan = nullptr;
          flashcore_status status =
              flashcore_backward_plan_create(&problem, &gradients, &options, &plan);
          if (status == FLASHCORE_OK) {
            status = flashcore_plan_run_backward(plan, &backward, nullptr, 0, nullptr);
          }
          flashcore_plan_destroy(plan);
          return status;
        },
        5);
  }
}

TEST_F(Allocation, OfAServingStep) {
  flashcore_append_problem rows;
  ASSERT_EQ(flashcore_append_problem_init(&rows, sizeof rows), FLASHCORE_OK);
  rows.k_new = rows.v_new = tensor(FLASHCORE_F32, {2, 2, 1, 8});
  rows.k = rows.v = problem.k;
  rows.seqlens_kv = problem.seqlens_kv = tensor(FLASHCORE_I32, {2});
  const std::array<int32_t, 2> before = {4, 3}, after = {5, 4};
  const std::vector<float> one(2 * 2 * 8, 0.5F);
  flashcore_append_arguments append;
  ASSERT_EQ(flashcore_append_arguments_init(&append, sizeof append), FLASHCORE_OK);
  append.k_new = append.v_new = one.data();
  append.k = data.k.data();
  append.v = data.v.data();
  append.seqlens_kv = before.data();
  arguments.seqlens_kv = after.data();
  const auto step = [&] {
    flashcore_plan* plan = nullptr;
    flashcore_status status = flashcore_plan_create(&problem, &options, &plan);
    if (status == FLASHCORE_OK) {
      status = flashcore_append_and_attend(&rows, &append, plan, &arguments, &options, nullptr, 0,
                                           nullptr);
    }
    flashcore_plan_destroy(plan);
    return status;
  };
  fails_cleanly(step, 5);
  keeps_nothing(step, 100'000);
}

TEST_F(Allocation, OfAnExplanation) {
  const auto count = [](void* user, const char*, const char*, int32_t) {
    ++*static_cast<int*>(user);
  };
  int verdicts = 0;
  fails_cleanly([&] { return flashcore_explain(&problem, &options, count, &verdicts); }, 5);
  EXPECT_GT(verdicts, 5);
}

TEST_F(Allocation, OfAContextPlan) {
  constexpr std::array<int64_t, 2> kLengths = {101, 40};
  flashcore_context_problem context;
  ASSERT_EQ(flashcore_context_problem_init(&context, sizeof context), FLASHCORE_OK);
  context.world = 4;
  context.algorithm = FLASHCORE_RING;
  context.documents = std::ssize(kLengths);
  context.seqlens_q = context.seqlens_kv = kLengths.data();
  fails_cleanly(
      [&] {
        flashcore_context_plan* plan = nullptr;
        const flashcore_status status = flashcore_context_plan_create(&context, &plan);
        flashcore_context_plan_destroy(plan);
        return status;
      },
      5);
}

// A refusal is a sentence, which needs memory too.
TEST_F(Allocation, OfARefusal) {
  problem.k.shape[1] = 3;
  const flashcore_status refused = plan_and_run();
  ASSERT_EQ(refused, FLASHCORE_INVALID_ARGUMENT);
  for (int64_t n = 1;; ++n) {
    failing_heap.fail_at(n);
    const flashcore_status status = plan_and_run();
    if (!failing_heap.has_failed()) {
      EXPECT_EQ(status, refused);
      EXPECT_GT(n, 1);
      break;
    }
    ASSERT_EQ(status, FLASHCORE_OUT_OF_MEMORY) << "allocation " << n;
  }
}

}  // namespace
}  // namespace flashcore::testing
