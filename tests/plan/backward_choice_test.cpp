#include "plan/backward_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "problem/backward.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr;

struct Call {
  bool deterministic = true, batch_invariant = false;
};

std::string declines(int64_t heads_q, int64_t heads_kv, int64_t queries, int64_t keys,
                     const Call& call = {}) {
  BackwardProblem problem;
  ForwardProblem& p = problem.forward;
  p.batch = 1;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.seqlen_q = queries;
  p.seqlen_kv = keys;
  PlanContext context;
  context.device.multiprocessors = 132;
  context.deterministic = call.deterministic;
  context.batch_invariant = call.batch_invariant;
  return sm90_split_declines(problem, context);
}

TEST(Sm90SplitDeclines, TilesThatFillTheGpuAreNotSplit) {
  EXPECT_EQ(declines(16, 16, 512, 512), "");
  EXPECT_THAT(declines(17, 17, 512, 512), HasSubstr("k: has 68 tiles of keys, wanted at most 66"));
  EXPECT_EQ(declines(66, 66, 512, 128), "");
  EXPECT_THAT(declines(66, 66, 512, 129), HasSubstr("k: has 132 tiles"));
}

TEST(Sm90SplitDeclines, InAnyOrderOnlyManyQueriesPayForTurns) {
  const Call any_order{.deterministic = false};
  EXPECT_THAT(declines(8, 8, 512, 512, any_order), HasSubstr("q: has 512 rows"));
  EXPECT_EQ(declines(32, 2, 512, 512, any_order), "");
  EXPECT_EQ(declines(16, 16, 4096, 256, any_order), "");
  EXPECT_THAT(declines(32, 32, 4096, 256, any_order), HasSubstr("wanted at most 33"));
}

TEST(Sm90SplitDeclines, TheChoiceMayNotDependOnTheBatch) {
  EXPECT_THAT(declines(8, 8, 512, 512, {.batch_invariant = true}), HasSubstr("batch_invariant"));
}

}  // namespace
}  // namespace flashcore
