// The gates of gradients: what passes, and that each kind of fault fails.
#include "bench/gate/gradient_gates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace flashcore::bench {
namespace {

using ::testing::HasSubstr;

struct GradientGates : ::testing::Test {
  static Problem problem(DType dtype) {
    Problem problem;
    problem.q = problem.k = problem.v = problem.o = TensorDesc::contiguous(dtype, {1, 2, 48, 16});
    problem.lse = TensorDesc::contiguous(DType::f32, {1, 2, 48});
    problem.sinks = TensorDesc::contiguous(DType::f32, {2});
    problem.bias = TensorDesc::contiguous(DType::f32, {1, 2, 1, 48});
    return problem;
  }

  void start(DType dtype) {
    Result<HostBackward> made = make_host_backward(make_host_problem(problem(dtype), 3),
                                                   gradients_of(problem(dtype), true), 3);
    ASSERT_TRUE(made.ok()) << made.status().message();
    host = std::move(*made);
    Result<GradientReferences> computed = compute_reference(host);
    ASSERT_TRUE(computed.ok()) << computed.status().message();
    reference = std::move(*computed);
    PlanOptions options;
    options.kernel = "reference";
    const Result<Plan> plan = make_backward_plan(host.forward.problem, host.gradients, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(plan->run(host.arguments()).ok());
  }

  std::string failure() const { return judge(host, reference).failure; }

  HostBackward host;
  GradientReferences reference;
};

TEST_F(GradientGates, TheRoundedReferencePasses) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    ASSERT_NO_FATAL_FAILURE(start(dtype));
    EXPECT_EQ(failure(), "") << to_string(dtype);
  }
}

// With N(0, 1) the terms of dQ, dK and dV do not cancel: limits are relative to the gradients.
TEST_F(GradientGates, TermsAreAsLargeAsTheirSumWhereNothingCancels) {
  ASSERT_NO_FATAL_FAILURE(start(DType::f32));
  for (const char* const name : {"dq", "dk", "dv"}) {
    const GradientReference& one = reference.find(name)->second;
    double square = 0;
    for (const double value : one.values) square += value * value;
    EXPECT_LT(one.norm, 1.5 * std::sqrt(square)) << name;
    EXPECT_GE(one.norm, std::sqrt(square)) << name;
  }
}

TEST_F(GradientGates, OneWrongElementFails) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    ASSERT_NO_FATAL_FAILURE(start(dtype));
    for (auto& [name, tensor] : host.tensors) {
      if (!is_gradient_output(name)) continue;
      const double value = tensor.get(1);
      tensor.set(1, value + 0.1 + 0.1 * std::abs(value));
      EXPECT_THAT(failure(), HasSubstr(name + ": ")) << to_string(dtype);
      tensor.set(1, std::numeric_limits<double>::quiet_NaN());
      EXPECT_THAT(failure(), HasSubstr(name + "[")) << to_string(dtype);
      tensor.set(1, value);
      EXPECT_EQ(failure(), "") << name;
    }
  }
}

TEST_F(GradientGates, SmallErrorsEverywhereFail) {
  ASSERT_NO_FATAL_FAILURE(start(DType::f32));
  HostTensor& dk = host.at("dk");
  for (int64_t i = 0; i < dk.elements(); ++i) dk.set(i, dk.get(i) * (1 + 1e-5));
  EXPECT_THAT(failure(), HasSubstr("dk: relative error"));
}

TEST_F(GradientGates, WritingOutsideFails) {
  ASSERT_NO_FATAL_FAILURE(start(DType::f32));
  host.at("dv").memory()[3] = std::byte{0};
  EXPECT_THAT(failure(), HasSubstr("dv: bytes outside of its elements were written"));
}

}  // namespace
}  // namespace flashcore::bench
