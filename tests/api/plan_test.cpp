// Plans: run again, shared by threads, given a wrong workspace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kBatch = 2, kHeads = 4, kHeadsKv = 2, kSeqlenQ = 37, kSeqlenKv = 53, kDim = 16;

Problem some_problem() {
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(DType::f32, {kBatch, kHeads, kSeqlenQ, kDim});
  problem.k = problem.v = TensorDesc::contiguous(DType::f32, {kBatch, kHeadsKv, kSeqlenKv, kDim});
  problem.lse = TensorDesc::contiguous(DType::f32, {kBatch, kHeads, kSeqlenQ});
  problem.causal = true;
  problem.dropout_p = 0.125f;
  return problem;
}

// Inputs that depend on `seed`, poisoned outputs, and a workspace.
struct Data {
  std::vector<float> q, k, v, o, lse;
  std::unique_ptr<void, decltype(&std::free)> workspace{nullptr, &std::free};
  size_t workspace_bytes;

  Data(const Plan& plan, int seed)
      : q(kBatch * kHeads * kSeqlenQ * kDim),
        k(kBatch * kHeadsKv * kSeqlenKv * kDim),
        v(k.size()),
        o(q.size(), NAN),
        lse(q.size() / kDim, NAN),
        workspace_bytes(plan.workspace_bytes()) {
    float value = static_cast<float>(seed);
    for (std::vector<float>* tensor : {&q, &k, &v}) {
      for (float& element : *tensor) element = 2 * std::sin(value += 1.0f);
    }
    if (workspace_bytes > 0) {
      workspace.reset(std::aligned_alloc(256, (workspace_bytes + 255) / 256 * 256));
    }
  }

  Arguments arguments() {
    Arguments arguments;
    arguments.q = q.data();
    arguments.k = k.data();
    arguments.v = v.data();
    arguments.o = o.data();
    arguments.lse = lse.data();
    arguments.dropout_seed = 11;
    return arguments;
  }

  Status run(const Plan& plan) { return plan.run(arguments(), workspace.get(), workspace_bytes); }
};

// All CPU kernels that compute some_problem().
std::vector<std::string> kernels_here() {
  std::vector<std::string> names;
  const Result<std::vector<KernelVerdict>> verdicts = explain(some_problem());
  for (const KernelVerdict& verdict : *verdicts) {
    if (verdict.refusal.empty()) names.push_back(verdict.kernel);
  }
  return names;
}

Plan plan_of(const std::string& kernel, int threads) {
  PlanOptions options;
  options.kernel = kernel;
  options.threads = threads;
  Result<Plan> plan = make_plan(some_problem(), options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

class PlanOfKernel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Cpu, PlanOfKernel, ::testing::ValuesIn(kernels_here()),
                         [](const auto& tested) { return tested.param; });

TEST_P(PlanOfKernel, UsedAgainGivesTheSameBits) {
  const Plan plan = plan_of(GetParam(), 0);
  Data first(plan, 1);
  Data between(plan, 2);
  Data again(plan, 1);
  ASSERT_TRUE(first.run(plan).ok());
  ASSERT_TRUE(between.run(plan).ok());
  ASSERT_TRUE(again.run(plan).ok());
  EXPECT_EQ(first.o, again.o);
  EXPECT_EQ(first.lse, again.lse);
  EXPECT_NE(first.o, between.o);
}

TEST_P(PlanOfKernel, OneWorkspaceServesManyRuns) {
  const Plan plan = plan_of(GetParam(), 0);
  Data first(plan, 1);
  Data again(plan, 1);
  Data between(plan, 2);
  ASSERT_TRUE(first.run(plan).ok());
  ASSERT_TRUE(plan.run(between.arguments(), again.workspace.get(), again.workspace_bytes).ok());
  ASSERT_TRUE(again.run(plan).ok());
  EXPECT_EQ(first.o, again.o);
}

TEST_P(PlanOfKernel, ACopyOutlivesTheOriginal) {
  std::optional<Plan> original = plan_of(GetParam(), 1);
  Data first(*original, 1);
  ASSERT_TRUE(first.run(*original).ok());
  const Plan copy = *original;
  original.reset();
  Data again(copy, 1);
  ASSERT_TRUE(again.run(copy).ok());
  EXPECT_EQ(first.o, again.o);
  EXPECT_EQ(copy.kernel(), GetParam());
}

// The thread sanitizer checks that threads share only the plan.
TEST_P(PlanOfKernel, ManyThreadsRunOnePlan) {
  const Plan plan = plan_of(GetParam(), 2);
  constexpr int kThreads = 4, kRuns = 3;
  std::vector<std::unique_ptr<Data>> wanted;
  for (int t = 0; t < kThreads; ++t) {
    wanted.push_back(std::make_unique<Data>(plan, t));
    ASSERT_TRUE(wanted.back()->run(plan).ok());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&plan, &wanted, t] {
      for (int run = 0; run < kRuns; ++run) {
        Data data(plan, t);
        const Status status = data.run(plan);
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(data.o, wanted[static_cast<size_t>(t)]->o);
        EXPECT_EQ(data.lse, wanted[static_cast<size_t>(t)]->lse);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(PlanOfKernel, WrongWorkspaceIsRefusedAndNothingIsWritten) {
  const Plan plan = plan_of(GetParam(), 0);
  Data data(plan, 1);
  const size_t wanted = plan.workspace_bytes();
  if (wanted == 0) {
    // Then the workspace is ignored, even a wild pointer.
    EXPECT_TRUE(plan.run(data.arguments(), reinterpret_cast<void*>(uintptr_t{3}), 5).ok());
    return;
  }
  Status status = plan.run(data.arguments(), nullptr, wanted);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), StartsWith("workspace: has 0 bytes, wanted"));
  status = plan.run(data.arguments(), data.workspace.get(), wanted - 1);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(wanted)));
  for (const int bytes : {8, 16, 128}) {
    status = plan.run(data.arguments(), static_cast<char*>(data.workspace.get()) + bytes, wanted);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << bytes;
    EXPECT_THAT(status.message(), HasSubstr("not aligned")) << bytes;
  }
  for (const float value : data.o) ASSERT_TRUE(std::isnan(value));
  for (const float value : data.lse) ASSERT_TRUE(std::isnan(value));
}

TEST_P(PlanOfKernel, WithoutAWorkspaceTheBitsAreTheSame) {
  const Plan plan = plan_of(GetParam(), 0);
  Data data(plan, 1), without(plan, 1);
  ASSERT_TRUE(data.run(plan).ok());
  const Status status = plan.run(without.arguments());
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(without.o, data.o);
  EXPECT_EQ(without.lse, data.lse);
}

}  // namespace
}  // namespace flashcore
