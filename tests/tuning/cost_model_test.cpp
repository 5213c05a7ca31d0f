// The formula: the work of a problem for a kernel, and its time.
#include "tuning/cost_model.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace flashcore::tuning {
namespace {

ForwardProblem problem(int64_t heads, int64_t queries, int64_t keys, bool causal = false) {
  ForwardProblem p;
  p.dtype = DType::f16;
  p.batch = 1;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = queries;
  p.seqlen_kv = keys;
  p.head_dim_qk = p.head_dim_v = 64;
  if (causal) p.band.right = 0;
  return p;
}

constexpr WorkUnit kUnit{.tile = "one",
                         .block_q = 128,
                         .group_q = 64,
                         .step_keys = 128,
                         .units_at_once = 2,
                         .most_at_once = 2};
constexpr double kFast = 1e12;  // bytes per microsecond: memory is no limit
constexpr Constants kConstants{
    .begin_and_end = 2, .step = 1, .mask = 0.5, .alone = 0.75, .tail = 0.25};
constexpr double kLaunch = 3;

double us(const ForwardProblem& p, const WorkUnit& unit, int64_t multiprocessors = 10,
          double bytes_per_us = kFast) {
  return predicted_us(work_of(p, unit, multiprocessors), kConstants, kLaunch, bytes_per_us);
}

TEST(Steps, AreCountedOverTilesOfQueries) {
  const Steps full = steps_of(problem(8, 512, 512), 64, 256);
  EXPECT_DOUBLE_EQ(full.longest, 2);
  EXPECT_DOUBLE_EQ(full.average, 2);
  const Steps causal = steps_of(problem(8, 512, 512, true), 64, 256);
  EXPECT_DOUBLE_EQ(causal.longest, 2);
  EXPECT_DOUBLE_EQ(causal.average, 1.5);
  EXPECT_DOUBLE_EQ(steps_of(problem(8, 0, 64), 64, 256).longest, 0);
  // Aligned at the last key: a query sees 448 more keys.
  EXPECT_DOUBLE_EQ(steps_of(problem(8, 64, 512, true), 64, 256).average, 2);
}

TEST(Work, CountsUnitsOnTheirSms) {
  EXPECT_DOUBLE_EQ(work_of(problem(8, 512, 512), kUnit, 10).units_per_sm, 3.2);
  WorkUnit cluster = kUnit;
  cluster.sms = 2;
  EXPECT_DOUBLE_EQ(work_of(problem(8, 512, 512), cluster, 10).units_per_sm, 6.4);
  EXPECT_DOUBLE_EQ(work_of(problem(8, 0, 512), kUnit, 10).units_per_sm, 0);
  EXPECT_EQ(work_of(problem(0, 512, 512), kUnit, 0).units_per_sm, 0);
}

TEST(Work, RowsThatAreNotThereTakeNoStep) {
  EXPECT_DOUBLE_EQ(work_of(problem(1, 128, 512), kUnit, 10).average, 4);
  EXPECT_DOUBLE_EQ(work_of(problem(1, 64, 512), kUnit, 10).average, 2);
  EXPECT_DOUBLE_EQ(work_of(problem(1, 64, 512), kUnit, 10).longest, 4);
}

TEST(Work, ReadsWhatABatchSharesOnce) {
  ForwardProblem p = problem(1, 10, 20);
  p.batch = 4;
  p.k.batch = p.v.batch = 20 * 64;
  EXPECT_DOUBLE_EQ(bytes_of(p), 2 * 128 * 4 * (10 + 20));
  p.k.batch = p.v.batch = 0;
  EXPECT_DOUBLE_EQ(bytes_of(p), 2 * 128 * (4 * 10 + 20));
}

// 10 SMs with two units each; 512 keys are 4 steps, and 256 queries two units of 2 + 4 us.
TEST(PredictedTime, IsWholeWavesOfEqualUnits) {
  const auto units = [](int64_t count) { return problem(count, 128, 512); };
  EXPECT_DOUBLE_EQ(us(units(1), kUnit), 3 + 0.75 * 6) << "alone on its SM";
  EXPECT_DOUBLE_EQ(us(units(10), kUnit), 3 + 0.75 * 6);
  EXPECT_DOUBLE_EQ(us(units(11), kUnit), 3 + 6.0) << "some SM has two";
  EXPECT_DOUBLE_EQ(us(units(20), kUnit), 3 + 6.0);
  EXPECT_DOUBLE_EQ(us(units(21), kUnit), 3 + 6 + 0.75 * 6);
  EXPECT_DOUBLE_EQ(us(units(40), kUnit), 3 + 12.0);
}

TEST(PredictedTime, AUnitThatHasItsSmToItselfIsAsFastAsAlone) {
  WorkUnit own = kUnit;
  own.units_at_once = 1;
  EXPECT_DOUBLE_EQ(us(problem(10, 128, 512), own), 3 + 0.75 * 6);
  EXPECT_DOUBLE_EQ(us(problem(20, 128, 512), own), 3 + 2 * 0.75 * 6) << "one after the other";
  own.most_at_once = 1;
  EXPECT_DOUBLE_EQ(us(problem(10, 128, 512), own), 3 + 6.0) << "`alone` is for tiles that share";
}

TEST(PredictedTime, SharesUnequalUnitsOut) {
  // Two units per head: 2.5 + 2 and 2.5 + 4 us, whose groups of 64 rows take 1, 1, 2 and 2 steps of
  // 128, and 3, 3, 4, 4.
  const ForwardProblem p = problem(40, 256, 256, true);
  const double unit = 2.5 + 1.5, longest = 2.5 + 2;
  EXPECT_DOUBLE_EQ(us(p, kUnit), 3 + 4 * unit + 0.25 * longest);
  // A single head takes as long as its longest unit.
  EXPECT_DOUBLE_EQ(us(problem(1, 256, 256, true), kUnit), 3 + 0.75 * longest);
}

TEST(PredictedTime, IsAtLeastThatOfTheMemory) {
  const ForwardProblem p = problem(1, 128, 512);
  EXPECT_DOUBLE_EQ(us(p, kUnit, 10, bytes_of(p) / 100), 3 + 100.0);
}

TEST(PredictedTime, GrowsWithTheProblem) {
  for (const bool causal : {false, true}) {
    double before = 0;
    for (int64_t heads = 0; heads < 200; ++heads) {
      const double now = us(problem(heads, 1000, 1000, causal), kUnit);
      EXPECT_GE(now, before) << heads;
      before = now;
    }
  }
}

}  // namespace
}  // namespace flashcore::tuning
