#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "bench/gate/gates.hpp"
#include "flashcore/flashcore.hpp"
#include "tests/problem/run_plan.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

TEST(Smoke, OneKeyGivesItsValue) {
  Problem problem;
  problem.q = problem.k = problem.v = problem.o = TensorDesc::contiguous(DType::f32, {1, 1, 1, 4});
  problem.lse = TensorDesc::contiguous(DType::f32, {1, 1, 1});
  const std::vector<float> q = {1, 2, 3, 4}, k = {1, 0, 1, 0}, v = {5, 6, 7, 8};
  std::vector<float> o(4, NAN), lse(1, NAN);
  const Result<Plan> plan = make_plan(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Arguments args;
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.o = o.data(), args.lse = lse.data();
  const Status status = run_plan(plan, args);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(o, v);
  EXPECT_NEAR(lse[0], 2.0, 1e-6);
}

// The reference, rounded to the type of O, passes its own gates on any problem.
TEST(Smoke, RandomProblemsAreValid) {
  for (uint64_t seed = 0; seed < problem_count(300); ++seed) {
    bench::HostProblem host = bench::random_problem(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, bench::describe(host.problem)));
    const Result<bench::Reference> reference = bench::compute_reference(host);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    PlanOptions options;
    options.kernel = "reference";
    const Result<Plan> plan = make_plan(host.problem, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Status status = plan->run(host.arguments());
    ASSERT_TRUE(status.ok()) << status.message();
    const bench::Verdict verdict = bench::judge(host, *reference);
    ASSERT_TRUE(verdict.passed) << verdict.failure;
  }
}

}  // namespace
}  // namespace flashcore
