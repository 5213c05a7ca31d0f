#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

TEST(Smoke, OneKeyGivesItsValue) {
  Problem problem;
  problem.q = problem.k = problem.v = problem.o = TensorDesc::contiguous(DType::f32, {1, 1, 1, 4});
  problem.lse = TensorDesc::contiguous(DType::f32, {1, 1, 1});
  const std::vector<float> q = {1, 2, 3, 4}, k = {1, 0, 1, 0}, v = {5, 6, 7, 8};
  std::vector<float> o(4, NAN), lse(1, NAN);
  Result<Plan> plan = make_plan(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Arguments args;
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.o = o.data(), args.lse = lse.data();
  const Status status = plan->run(args);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(o, v);
  EXPECT_NEAR(lse[0], 2.0, 1e-6);
}

}  // namespace
}  // namespace flashcore
