// The gate of `bench --backward`: what it passes and fails, for given problems and for suites.
#include "bench/run/backward_workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "bench/cases/cases.hpp"
#include "tests/problem_count.hpp"

namespace flashcore::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Case small_case() {
  return {.name = "test",
          .batch = 3,
          .heads_q = 4,
          .heads_kv = 2,
          .seqlen_q = 40,
          .seqlen_kv = 50,
          .head_dim = 16,
          .causal = true};
}

enum class Of { given, suite };

std::unique_ptr<Workload> workload_of(const Case& one, Of of) {
  const Problem problem = to_problem(one);
  const Gradients gradients = plain_gradients(problem);
  if (of == Of::given) {
    Result<std::unique_ptr<Workload>> made =
        given_backward_workload(add_gradients(fill(one, 3), gradients, 3), PlanOptions{});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  Result<std::unique_ptr<Workload>> made =
      tiled_backward_workload(problem, gradients, TiledInputs(one.dtype), PlanOptions{});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return std::move(*made);
}

// The gate's verdict on a plan, which may be for another problem than the workload's.
Verdict verdict_of(Workload& workload, const Problem& problem, const Gradients& gradients) {
  const Result<Plan> plan = make_backward_plan(problem, gradients);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const Result<TimedCall> call = workload.prepare(*plan);
  EXPECT_TRUE(call.ok() && (*call)(Stream{}).ok());
  const Result<Verdict> verdict = workload.judge();
  EXPECT_TRUE(verdict.ok()) << verdict.status().message();
  return *verdict;
}

TEST(BackwardWorkload, PassesWhatIsRight) {
  Case one = small_case();
  for (const Of of : {Of::given, Of::suite}) {
    for (const bool featured : {false, true}) {
      one.bias = featured ? std::optional(DType::f16) : std::nullopt;
      one.mask = one.alibi = featured;
      one.softcap = featured ? 20 : 0;
      const auto workload = workload_of(one, of);
      const Problem problem = to_problem(one);
      const Verdict verdict = verdict_of(*workload, problem, plain_gradients(problem));
      EXPECT_TRUE(verdict.passed) << verdict.failure;
      EXPECT_GT(verdict.relative_error, 0);
      EXPECT_EQ(workload->judged(), "all rows");
    }
  }
}

// Only suites have these cases; entries of the packed batch have 13, 27 and 41 rows.
TEST(BackwardWorkload, PacksAndSinks) {
  for (const bool packed : {false, true}) {
    Case one = small_case();
    one.seqlen_q = one.seqlen_kv = 27;
    one.sinks = true;
    one.packed = packed;
    const auto workload = workload_of(one, Of::suite);
    const Problem problem = to_problem(one);
    const Verdict verdict = verdict_of(*workload, problem, plain_gradients(problem));
    EXPECT_TRUE(verdict.passed) << verdict.failure;
    EXPECT_EQ(workload->judged(), "all rows");
    const double pairs = packed ? 13 * 14 + 27 * 28 + 41 * 42 : 3 * 27 * 27;
    EXPECT_EQ(workload->flop(), 10 * 4 * 16 * pairs / 2);
    Problem other = problem;
    other.causal = false;
    EXPECT_FALSE(verdict_of(*workload, other, plain_gradients(other)).passed);
  }
}

// Dropout depends on the head: only the first one can be judged by itself.
TEST(BackwardWorkload, WithDropoutTheFirstHeadIsJudged) {
  Case one = small_case();
  one.dropout_p = 0.4f;
  const auto workload = workload_of(one, Of::suite);
  const Problem problem = to_problem(one);
  const Verdict verdict = verdict_of(*workload, problem, plain_gradients(problem));
  EXPECT_TRUE(verdict.passed) << verdict.failure;
  EXPECT_EQ(workload->judged(), "80 of 480 rows of dQ, 50 of 300 of dK and dV");
}

TEST(BackwardWorkload, FailsWrongNumbers) {
  for (const Of of : {Of::given, Of::suite}) {
    const auto workload = workload_of(small_case(), of);
    Problem other = to_problem(small_case());
    other.softmax_scale = 0.26f;  // instead of 1 / sqrt(16)
    const Verdict verdict = verdict_of(*workload, other, plain_gradients(other));
    EXPECT_FALSE(verdict.passed);
    EXPECT_THAT(verdict.failure, HasSubstr("relative error is"));
    if (of == Of::suite) {
      EXPECT_THAT(verdict.failure, StartsWith("entry 0, head 0, rows from 0: dq"));
    }
  }
}

// Runs a plan with fewer batch entries, `stride_factor` entries apart.
Verdict verdict_of_fewer(Workload& workload, const Case& one, int64_t batch,
                         int64_t stride_factor) {
  Problem problem = to_problem(one);
  for_each_tensor(to_problem(one), [&](std::string_view name, const TensorDesc& desc) {
    TensorDesc fewer = desc;
    fewer.shape[0] = batch;
    fewer.stride[0] *= stride_factor;
    set_tensor(problem, name, fewer);
  });
  Gradients gradients = plain_gradients(problem);
  gradients.d_o.stride = problem.o.stride;
  gradients.dq.stride = problem.q.stride;
  gradients.dk.stride = problem.k.stride;
  gradients.dv.stride = problem.v.stride;
  return verdict_of(workload, problem, gradients);
}

TEST(BackwardWorkload, FailsWhatWasNotWritten) {
  for (const Of of : {Of::given, Of::suite}) {
    const auto workload = workload_of(small_case(), of);
    // The last entry, and one in the middle.
    EXPECT_FALSE(verdict_of_fewer(*workload, small_case(), 2, 1).passed);
    EXPECT_FALSE(verdict_of_fewer(*workload, small_case(), 2, 2).passed);
    EXPECT_TRUE(verdict_of_fewer(*workload, small_case(), 3, 1).passed);  // checks the test itself
  }
}

// With dropout the last entry is not judged, but must have been written.
TEST(BackwardWorkload, FailsWhatWasNotWrittenWhereNothingIsJudged) {
  Case one = small_case();
  one.dropout_p = 0.4f;
  const auto workload = workload_of(one, Of::suite);
  EXPECT_THAT(verdict_of_fewer(*workload, one, 2, 1).failure, HasSubstr("NaN or were not written"));
  EXPECT_TRUE(verdict_of_fewer(*workload, one, 3, 1).passed);  // checks the test itself
}

TEST(BackwardWorkload, ALargeGateIsOfRows) {
  Case one = small_case();
  const auto by_rows = [&] {
    return judged_by_rows(to_problem(one), plain_gradients(to_problem(one)));
  };
  EXPECT_FALSE(by_rows());
  one.seqlen_q = one.seqlen_kv = 4096;
  one.head_dim = 128;
  EXPECT_TRUE(by_rows());
  one.bias = DType::f16;
  const Problem problem = to_problem(one);
  EXPECT_TRUE(by_rows());
  EXPECT_FALSE(judged_by_rows(problem, gradients_of(problem, false)));
  EXPECT_THAT(gate_refusal(problem, gradients_of(problem, false)),
              StartsWith("gate: d_bias is a sum over more rows than are judged"));
  EXPECT_EQ(gate_refusal(problem, plain_gradients(problem)), "");
}

// A given problem above the limit of whole gradients, with gaps between its rows.
TEST(BackwardWorkload, AGivenProblemIsSampled) {
  if (kSanitized) GTEST_SKIP() << kTooLong;
  Case one = small_case();
  one.batch = 4, one.heads_q = one.heads_kv = 16;
  one.seqlen_q = one.seqlen_kv = 2100;
  Problem problem = to_problem(one);
  for (TensorDesc* const tensor : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    tensor->stride = {2100 * 16 * 17, 17, 16 * 17, 1};
  }
  Gradients gradients = plain_gradients(problem);
  gradients.d_o.stride = gradients.dq.stride = gradients.dk.stride = problem.o.stride;
  ASSERT_TRUE(judged_by_rows(problem, gradients));
  Result<std::unique_ptr<Workload>> made = given_backward_workload(
      add_gradients(make_host_problem(problem, 3), gradients, 3), PlanOptions{});
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Verdict verdict = verdict_of(**made, problem, gradients);
  EXPECT_TRUE(verdict.passed) << verdict.failure;
  EXPECT_THAT((*made)->judged(), HasSubstr(" of 134400 rows of dQ, "));
  Problem other = problem;
  other.softmax_scale = 0.26f;
  EXPECT_FALSE(verdict_of(**made, other, gradients).passed);
}

}  // namespace
}  // namespace flashcore::bench
