// The gate of `bench --backward`: what it passes and fails, where all heads are judged and where the
// first and the last are.
#include "bench/run/backward_workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "bench/cases/cases.hpp"

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

std::unique_ptr<Workload> workload_of(const Case& one, JudgedHeads heads) {
  const Problem problem = to_problem(one);
  Result<std::unique_ptr<Workload>> made = backward_workload(
      add_gradients(fill(one, 3), plain_gradients(problem), 3), PlanOptions{}, heads, false);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

// What the gate says of a plan, which need not be of the workload's problem.
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
  for (const JudgedHeads heads : {JudgedHeads::all, JudgedHeads::first_and_last}) {
    for (const bool featured : {false, true}) {
      one.bias = featured ? std::optional(DType::f16) : std::nullopt;
      one.mask = one.alibi = featured;
      one.softcap = featured ? 20 : 0;
      const auto workload = workload_of(one, heads);
      const Problem problem = to_problem(one);
      const Verdict verdict = verdict_of(*workload, problem, plain_gradients(problem));
      EXPECT_TRUE(verdict.passed) << verdict.failure;
      EXPECT_GT(verdict.relative_error, 0);
      EXPECT_EQ(workload->judged(), heads == JudgedHeads::all ? "all heads" : "2 of 6 heads");
    }
  }
}

// Dropout depends on the head: only the first one can be judged alone.
TEST(BackwardWorkload, WithDropoutTheFirstHeadIsJudged) {
  Case one = small_case();
  one.dropout_p = 0.4f;
  const auto workload = workload_of(one, JudgedHeads::first_and_last);
  const Problem problem = to_problem(one);
  const Verdict verdict = verdict_of(*workload, problem, plain_gradients(problem));
  EXPECT_TRUE(verdict.passed) << verdict.failure;
  EXPECT_EQ(workload->judged(), "1 of 6 heads");
}

TEST(BackwardWorkload, FailsWrongNumbers) {
  for (const JudgedHeads heads : {JudgedHeads::all, JudgedHeads::first_and_last}) {
    const auto workload = workload_of(small_case(), heads);
    Problem other = to_problem(small_case());
    other.softmax_scale = 0.26f;  // for 1 / sqrt(16)
    const Verdict verdict = verdict_of(*workload, other, plain_gradients(other));
    EXPECT_FALSE(verdict.passed);
    EXPECT_THAT(verdict.failure, HasSubstr("relative error is"));
    if (heads == JudgedHeads::first_and_last) {
      EXPECT_THAT(verdict.failure, StartsWith("entry 0, head 0 of the keys: "));
    }
  }
}

// Of a plan of fewer batch entries, `stride_factor` entries apart.
Verdict verdict_of_fewer(Workload& workload, int64_t batch, int64_t stride_factor) {
  Problem problem = to_problem(small_case());
  for_each_tensor(to_problem(small_case()), [&](std::string_view name, const TensorDesc& desc) {
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
  for (const JudgedHeads heads : {JudgedHeads::all, JudgedHeads::first_and_last}) {
    const auto workload = workload_of(small_case(), heads);
    // The last entry, and one in the middle, whose heads are not among the first and the last.
    EXPECT_FALSE(verdict_of_fewer(*workload, 2, 1).passed);
    const Verdict middle = verdict_of_fewer(*workload, 2, 2);
    EXPECT_FALSE(middle.passed);
    if (heads == JudgedHeads::first_and_last) {
      EXPECT_THAT(middle.failure, HasSubstr("NaN or were not written"));
    }
    EXPECT_TRUE(verdict_of_fewer(*workload, 3, 1).passed);  // the test itself
  }
}

TEST(BackwardWorkload, ALargeGateIsSampledAndALargerOneRefused) {
  Case one = small_case();
  EXPECT_EQ(judged_heads(to_problem(one)), JudgedHeads::all);
  one.seqlen_q = one.seqlen_kv = 4096;
  one.head_dim = 128;
  EXPECT_EQ(judged_heads(to_problem(one)), JudgedHeads::first_and_last);
  EXPECT_EQ(gate_refusal(to_problem(one), JudgedHeads::first_and_last), "");
  EXPECT_THAT(gate_refusal(to_problem(one), JudgedHeads::all), StartsWith("gate: takes 1.3e+11"));
  one.seqlen_q = one.seqlen_kv = 32768;
  EXPECT_THAT(gate_refusal(to_problem(one), JudgedHeads::first_and_last),
              HasSubstr("wanted at most 1e+11"));
}

}  // namespace
}  // namespace flashcore::bench
