// Context parallelism through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "flashcore/context_parallel.hpp"
#include "flashcore/flashcore.h"

namespace flashcore::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::array<int64_t, 2> kLengths = {101, 40};

flashcore_context_problem context_problem() {
  flashcore_context_problem problem;
  EXPECT_EQ(flashcore_context_problem_init(&problem, sizeof problem), FLASHCORE_OK);
  problem.world = 4;
  problem.rank = 1;
  problem.algorithm = FLASHCORE_RING;
  problem.documents = std::ssize(kLengths);
  problem.seqlens_q = problem.seqlens_kv = kLengths.data();
  problem.causal = 1;
  return problem;
}

TEST(CContext, AnswersAreThoseOfTheCppPlan) {
  const flashcore_context_problem problem = context_problem();
  ContextProblem same;
  same.world = 4;
  same.rank = 1;
  same.algorithm = ContextAlgorithm::ring;
  same.seqlens_q = same.seqlens_kv = {kLengths.begin(), kLengths.end()};
  same.causal = true;
  const ContextPlan wanted = *make_context_plan(same);

  flashcore_context_plan* plan = nullptr;
  ASSERT_EQ(flashcore_context_plan_create(&problem, &plan), FLASHCORE_OK);
  flashcore_context_info info;
  info.struct_size = sizeof info;
  ASSERT_EQ(flashcore_context_plan_info(plan, &info), FLASHCORE_OK);
  EXPECT_EQ(info.algorithm, FLASHCORE_RING);
  EXPECT_EQ(info.rows_q, wanted.rows_q);
  EXPECT_EQ(info.initialise, wanted.initialise ? 1 : 0);
  EXPECT_EQ(info.ring_seconds, wanted.seconds[0]);
  EXPECT_EQ(info.ulysses_seconds, wanted.seconds[2]);
  ASSERT_EQ(info.num_pieces_q, std::ssize(wanted.pieces_q));
  EXPECT_EQ(info.pieces_q[4 * 5 + 1], wanted.pieces_q[5].begin);
  EXPECT_EQ(info.pieces_q[4 * 5 + 3], wanted.pieces_q[5].rows);
  ASSERT_EQ(info.steps, std::ssize(wanted.steps));
  for (int64_t i = 0; i < info.steps; ++i) {
    const ContextStep& one = wanted.steps[static_cast<size_t>(i)];
    flashcore_context_step step;
    step.struct_size = sizeof step;
    ASSERT_EQ(flashcore_context_plan_step(plan, i, &step), FLASHCORE_OK);
    EXPECT_EQ(step.owner, one.owner);
    EXPECT_EQ(step.send_to, one.send_to);
    EXPECT_EQ(step.send_own_to, one.send_own_to);
    EXPECT_EQ(step.receive_from, one.receive_from);
    EXPECT_EQ(step.gradient_to, one.gradient_to);
    EXPECT_EQ(step.gradient_from, one.gradient_from);
    EXPECT_EQ(step.gradient_home_from, one.gradient_home_from);
    ASSERT_EQ(step.calls, std::ssize(one.calls));
    flashcore_context_call call;
    call.struct_size = sizeof call;
    ASSERT_EQ(flashcore_context_plan_call(plan, i, 0, &call), FLASHCORE_OK);
    EXPECT_EQ(call.window_right, one.calls[0].window_right);
    ASSERT_EQ(call.num_blocks, std::ssize(one.calls[0].blocks));
    EXPECT_EQ(call.blocks[5 * 1 + 1], one.calls[0].blocks[1].q_end);
    EXPECT_EQ(call.blocks[5 * 1 + 4], one.calls[0].blocks[1].offset);
  }
  flashcore_context_plan_destroy(plan);
  EXPECT_EQ(flashcore_context_plan_info(plan, &info), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("is no plan"));
  flashcore_context_plan_destroy(nullptr);
}

TEST(CContext, NonsenseIsRefused) {
  flashcore_context_problem problem = context_problem();
  flashcore_context_plan* plan = nullptr;
  EXPECT_EQ(flashcore_context_plan_create(&problem, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_context_plan_create(nullptr, &plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("problem: pointer is null"));
  problem.seqlens_kv = nullptr;
  EXPECT_EQ(flashcore_context_plan_create(&problem, &plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("seqlens_kv: pointer is null"));
  problem = context_problem();
  problem.documents = -1;
  EXPECT_EQ(flashcore_context_plan_create(&problem, &plan), FLASHCORE_INVALID_ARGUMENT);
  problem = context_problem();
  problem.layout = 2;
  EXPECT_EQ(flashcore_context_plan_create(&problem, &plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  problem = context_problem();
  problem.algorithm = FLASHCORE_ULYSSES;  // one head on four ranks
  EXPECT_EQ(flashcore_context_plan_create(&problem, &plan), FLASHCORE_UNSUPPORTED);
  problem = context_problem();
  ASSERT_EQ(flashcore_context_plan_create(&problem, &plan), FLASHCORE_OK);
  flashcore_context_step step;
  step.struct_size = sizeof step;
  EXPECT_EQ(flashcore_context_plan_step(plan, 4, &step), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("step: is 4, wanted 0 to 3"));
  flashcore_context_plan_destroy(plan);
}

}  // namespace
}  // namespace flashcore::testing
