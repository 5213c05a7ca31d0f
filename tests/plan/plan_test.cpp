// make_plan, explain and Plan with the kernels of this build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "plan/device.hpp"
#include "plan/table.hpp"
#include "tests/problem/problems.hpp"
#include "tests/problem/run_plan.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Tests choose kernels themselves: clears what the environment asks for.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    if (const char* const forced = std::getenv("FLASHCORE_KERNEL")) saved_ = forced;
    unsetenv("FLASHCORE_KERNEL");
  }
  ~PlanTest() override {
    unsetenv("FLASHCORE_KERNEL");
    if (saved_) setenv("FLASHCORE_KERNEL", saved_->c_str(), 1);
  }

 private:
  std::optional<std::string> saved_;
};

PlanOptions with_kernel(std::string name) {
  PlanOptions options;
  options.kernel = std::move(name);
  return options;
}

Status run(const Plan& plan, bench::HostProblem& host) { return run_plan(plan, host.arguments()); }

TEST_F(PlanTest, OutlivesItsProblemAndRunsManyTimes) {
  std::optional<Plan> plan;
  {
    const Problem problem = full_problem();
    const Result<Plan> made = make_plan(problem);
    ASSERT_TRUE(made.ok()) << made.status().message();
    plan = *made;
  }
  for (uint64_t seed = 0; seed < 5; ++seed) {
    bench::HostProblem host = bench::make_host_problem(full_problem(), seed);
    ASSERT_TRUE(run(*plan, host).ok());
    bench::HostProblem other = bench::make_host_problem(full_problem(), seed);
    const Result<Plan> fresh = make_plan(other.problem);
    ASSERT_TRUE(run(*fresh, other).ok());
    EXPECT_TRUE(host.at("o").same_elements(other.at("o")));
    EXPECT_TRUE(host.at("lse").same_elements(other.at("lse")));
  }
}

TEST_F(PlanTest, AnErrorLeavesItUsable) {
  bench::HostProblem host = bench::make_host_problem(dense_problem(), 1);
  const Result<Plan> plan = make_plan(host.problem);
  Arguments args = host.arguments();
  args.k = nullptr;
  EXPECT_FALSE(plan->run(args).ok());
  EXPECT_TRUE(run(*plan, host).ok());
}

TEST_F(PlanTest, ForcedKernelRuns) {
  for (const Variant& kernel : variants()) {
    if (kernel.device != DeviceKind::cpu) continue;
    const Problem problem = dense_problem(DType::f16);
    const Result<Plan> plan = make_plan(problem, with_kernel(kernel.name));
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), StatusCode::unsupported);
      EXPECT_THAT(plan.status().message(), StartsWith("kernel " + kernel.name + ": "));
      continue;
    }
    EXPECT_EQ(plan->kernel(), kernel.name);
    EXPECT_THAT(std::string(plan->reason()), HasSubstr("asked for"));
    bench::HostProblem host = bench::make_host_problem(problem, 1);
    EXPECT_TRUE(run(*plan, host).ok());
  }
}

TEST_F(PlanTest, ForcedKernelThatRefusesSaysWhy) {
  const Result<Plan> plan = make_plan(dense_problem(DType::f32), with_kernel("naive"));
  ASSERT_EQ(plan.status().code(), StatusCode::unsupported);
  EXPECT_THAT(plan.status().message(), StartsWith("kernel naive: q: dtype is f32, wanted"));
}

TEST_F(PlanTest, UnknownKernelListsTheKnown) {
  const Result<Plan> plan = make_plan(dense_problem(), with_kernel("cuda_dream"));
  ASSERT_EQ(plan.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(plan.status().message(), StartsWith("kernel: is 'cuda_dream', wanted"));
  for (const Variant& kernel : variants()) {
    if (kernel.device == DeviceKind::cpu) {
      EXPECT_THAT(plan.status().message(), HasSubstr(kernel.name));
    }
  }
}

TEST_F(PlanTest, AFormerNameIsReadAsTheNewOne) {
  constexpr const char* kSentence =
      "kernel: is 'forward_sm90_latency', wanted one of this device's: ";
  const Result<Plan> by_option = make_plan(dense_problem(), with_kernel("forward_small_sm90"));
  EXPECT_EQ(by_option.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(by_option.status().message(), StartsWith(kSentence));
  setenv("FLASHCORE_KERNEL", "forward_small_sm90", 1);
  EXPECT_THAT(make_plan(dense_problem()).status().message(), StartsWith(kSentence));
}

TEST_F(PlanTest, EnvironmentForcesOnlyWhereTheProgramLeavesTheChoiceOpen) {
  setenv("FLASHCORE_KERNEL", "reference", 1);
  EXPECT_EQ(make_plan(dense_problem(DType::f16))->kernel(), "reference");
  EXPECT_EQ(make_plan(dense_problem(DType::f16), with_kernel("naive"))->kernel(), "naive");
  setenv("FLASHCORE_KERNEL", "no_such", 1);
  EXPECT_THAT(make_plan(dense_problem()).status().message(), HasSubstr("'no_such'"));
  setenv("FLASHCORE_KERNEL", "", 1);  // an empty value counts as unset
  EXPECT_EQ(make_plan(dense_problem(DType::f16), with_kernel("naive"))->kernel(), "naive");
}

TEST_F(PlanTest, ExplainListsTheTableInItsOrder) {
  const auto verdicts = explain(dense_problem());
  ASSERT_TRUE(verdicts.ok());
  size_t n = 0;
  bool chosen = false;
  for (const Variant& kernel : variants()) {
    if (kernel.device != DeviceKind::cpu) continue;
    ASSERT_LT(n, verdicts->size());
    const KernelVerdict& verdict = (*verdicts)[n++];
    EXPECT_EQ(verdict.kernel, kernel.name);
    EXPECT_EQ(verdict.automatic, kernel.automatic);
    if (!chosen && verdict.automatic && verdict.refusal.empty()) {
      EXPECT_EQ(make_plan(dense_problem())->kernel(), verdict.kernel);
      chosen = true;
    }
    const Result<Plan> forced = make_plan(dense_problem(), with_kernel(kernel.name));
    EXPECT_EQ(forced.ok(), verdict.refusal.empty());
    if (!forced.ok()) {
      EXPECT_THAT(forced.status().message(), HasSubstr(verdict.refusal));
    }
  }
  EXPECT_EQ(n, verdicts->size());
  EXPECT_TRUE(chosen);
}

// Extents that fit individually, and whose products do not: all keys are the same.
TEST_F(PlanTest, SizesThatDoNotFitAreRefused) {
  constexpr int64_t kMany = int64_t{1} << 20, kKeys = 2147483647;
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(DType::f32, {kMany, kMany, 1, 8});
  problem.k = problem.v = TensorDesc::strided(DType::f32, {kMany, kMany, kKeys, 8}, {0, 0, 0, 1});
  const Status status = make_plan(problem, with_kernel("cpu_simd")).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("1048576 sequences of 1048576 heads"));
  const Result<Plan> plan = make_plan(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kernel(), "reference") << "which needs no workspace";

  problem.q = problem.o = TensorDesc::contiguous(DType::f32, {kMany, kMany, 0, 8});
  const Result<Plan> nothing = make_plan(problem, with_kernel("cpu_simd"));
  ASSERT_TRUE(nothing.ok()) << nothing.status().message();
  EXPECT_EQ(nothing->workspace_bytes(), 0U) << "O has no element";
}

// The reference keeps K and V of a head as fp64.
TEST_F(PlanTest, ARunThatNeedsMoreThanAnObjectCanHoldIsAStatus) {
  constexpr int64_t kMost = 2147483647;
  Problem problem;
  problem.q = TensorDesc::contiguous(DType::f32, {1, 1, 1, kMost});
  problem.k = TensorDesc::strided(DType::f32, {1, 1, kMost, kMost}, {0, 0, 0, 1});
  problem.v = TensorDesc::strided(DType::f32, {1, 1, kMost, 1}, {0, 0, 0, 1});
  problem.o = TensorDesc::contiguous(DType::f32, {1, 1, 1, 1});
  const Result<Plan> plan = make_plan(problem, with_kernel("reference"));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  float memory[2] = {};  // O comes first, because Q claims the 8 GB after it
  const Status status =
      plan->run({.q = &memory[1], .k = &memory[1], .v = &memory[1], .o = &memory[0]});
  EXPECT_EQ(status.code(), StatusCode::out_of_memory) << status.message();
}

TEST(Dropout, KeepsNoPairThatThereIsNot) {
  constexpr int64_t kFirst = int64_t{1} << 31;
  for (const int64_t index : {int64_t{-1}, int64_t{-4}, INT64_MIN, kFirst, INT64_MAX}) {
    EXPECT_FALSE(dropout_keeps(1, 2, 0, index, 0, 0, 0)) << index;
    EXPECT_FALSE(dropout_keeps(1, 2, 0, 0, index, 0, 0)) << index;
    EXPECT_FALSE(dropout_keeps(1, 2, 0, 0, 0, index, 0)) << index;
    EXPECT_FALSE(dropout_keeps(1, 2, 0, 0, 0, 0, index)) << index;
  }
  EXPECT_TRUE(dropout_keeps(1, 2, 0, 0, kFirst - 1, kFirst - 1, kFirst - 1));
}

TEST_F(PlanTest, ThreadsAreBounded) {
  for (const int threads : {-1, -2147483647 - 1, 4097, 2147483647}) {
    PlanOptions options;
    options.threads = threads;
    const Status status = make_plan(dense_problem(), options).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), StartsWith("threads: is " + std::to_string(threads)));
    EXPECT_EQ(explain(dense_problem(), options).status().message(), status.message());
  }
  for (const int threads : {0, 1, 2, 7, 100, 4096}) {  // more threads than tasks are fine
    PlanOptions options;
    options.threads = threads;
    const Result<Plan> plan = make_plan(dense_problem(), options);
    ASSERT_TRUE(plan.ok());
    bench::HostProblem host = bench::make_host_problem(dense_problem(), 1);
    EXPECT_TRUE(run(*plan, host).ok());
  }
}

TEST_F(PlanTest, DevicesThatAreNotThere) {
  PlanOptions options;
  options.device = {DeviceKind::cpu, 1};
  EXPECT_THAT(make_plan(dense_problem(), options).status().message(),
              StartsWith("device: CPU index is 1, wanted 0"));
  options.device = {static_cast<DeviceKind>(7), 0};
  EXPECT_THAT(make_plan(dense_problem(), options).status().message(),
              StartsWith("device: kind is 7, wanted"));
  const std::vector<DeviceInfo> all = devices();
  const auto gpus = std::count_if(all.begin(), all.end(), [](const DeviceInfo& info) {
    return info.device.kind == DeviceKind::cuda;
  });
  for (const int32_t index : {-1, static_cast<int32_t>(gpus), 1000}) {
    options.device = {DeviceKind::cuda, index};
    const Status status = make_plan(dense_problem(), options).status();
    EXPECT_EQ(status.code(), gpus == 0 ? StatusCode::unsupported : StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), StartsWith("device: is cuda:" + std::to_string(index)));
    EXPECT_EQ(explain(dense_problem(), options).status().message(), status.message());
  }
}

TEST_F(PlanTest, ASimulatedGpuNeedsABuildWithTheSimulator) {
  if (simulator_seed()) GTEST_SKIP() << "this is such a build";
  PlanOptions options;
  options.device = {DeviceKind::sim, 0};
  const Status status = make_plan(dense_problem(), options).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_EQ(status.message(),
            "device: is sim:0, wanted a build with -DFLASHCORE_SIMULATOR=ON for that");
}

TEST_F(PlanTest, TheCpuIsTheFirstDevice) {
  const std::vector<DeviceInfo> all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].device.kind, DeviceKind::cpu);
  EXPECT_EQ(all[0].device.index, 0);
  EXPECT_FALSE(all[0].name.empty());
  EXPECT_GE(all[0].multiprocessors, 1);
  EXPECT_GT(all[0].memory_bytes, 0);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_NE(all[i].device.kind, DeviceKind::cpu);
}

TEST_F(PlanTest, ManyThreadsRunOnePlan) {
  const Problem problem = full_problem();
  const Result<Plan> plan = make_plan(problem);
  ASSERT_TRUE(plan.ok());
  bench::HostProblem wanted = bench::make_host_problem(problem, 9);
  ASSERT_TRUE(run(*plan, wanted).ok());
  std::vector<bench::HostProblem> hosts;
  for (int t = 0; t < 6; ++t) hosts.push_back(bench::make_host_problem(problem, 9));
  std::vector<int> failures(hosts.size(), 0);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < hosts.size(); ++t) {
      threads.emplace_back([&, t, copy = *plan] {
        for (int n = 0; n < 20; ++n) {
          hosts[t].at("o").poison();
          hosts[t].at("lse").poison();
          if (!run(copy, hosts[t]).ok() || !hosts[t].at("o").same_elements(wanted.at("o")) ||
              !hosts[t].at("lse").same_elements(wanted.at("lse"))) {
            ++failures[t];
          }
        }
      });
    }
  }
  for (const int count : failures) EXPECT_EQ(count, 0);
}

TEST_F(PlanTest, NoKernelNeedsAWorkspaceFromItsCaller) {
  for (const Variant& kernel : variants()) {
    if (kernel.device != DeviceKind::cpu) continue;
    const Result<Plan> plan = make_plan(dense_problem(DType::f16), with_kernel(kernel.name));
    if (!plan.ok()) continue;
    bench::HostProblem host = bench::make_host_problem(dense_problem(DType::f16), 1);
    const Status status = plan->run(host.arguments());
    EXPECT_TRUE(status.ok()) << kernel.name << ": " << status.message();
    const Status small = plan->run(host.arguments(), nullptr, 1);
    EXPECT_EQ(small.ok(), plan->workspace_bytes() == 0) << kernel.name;
  }
}

TEST(BuildInfo, SaysWhatWasBuilt) {
  const BuildInfo info = build_info();
  EXPECT_THAT(info.version, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_FALSE(info.build_type.empty());
  EXPECT_FALSE(info.cpu_target.empty());
  EXPECT_EQ(info.cuda, !info.cuda_targets.empty());
}

TEST(Names, OfStatusCodes) {
  EXPECT_EQ(to_string(StatusCode::ok), "ok");
  EXPECT_EQ(to_string(StatusCode::invalid_argument), "invalid_argument");
  EXPECT_EQ(to_string(StatusCode::unsupported), "unsupported");
  EXPECT_EQ(to_string(StatusCode::out_of_memory), "out_of_memory");
  EXPECT_EQ(to_string(StatusCode::device_error), "device_error");
  EXPECT_EQ(to_string(StatusCode::internal), "internal");
  EXPECT_EQ(to_string(static_cast<StatusCode>(99)), "unknown");
}

}  // namespace
}  // namespace flashcore
