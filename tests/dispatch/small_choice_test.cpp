// The rule that chooses between forward_small_sm90 and the kernel after it, against what was
// measured: flashcore_small_grid's recording is replayed.
#include "dispatch/small_choice.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace flashcore {
namespace {

constexpr int64_t kMultiprocessors = 132;  // of the GPU that was measured

ForwardProblem problem(int64_t heads, int64_t seqlen, int64_t head_dim, bool causal) {
  ForwardProblem p;
  p.batch = 1;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = p.seqlen_kv = seqlen;
  p.head_dim_qk = p.head_dim_v = head_dim;
  if (causal) p.band.right = 0;
  return p;
}

struct Next {
  const char* kernel;
  NextKernel next;
};

class SmallGrid : public testing::TestWithParam<Next> {};

INSTANTIATE_TEST_SUITE_P(Recorded, SmallGrid,
                         testing::Values(Next{"forward_sm80", NextKernel::forward_sm80},
                                         Next{"forward_sm90", NextKernel::forward_sm90}));

TEST_P(SmallGrid, TheChoiceIsRight) {
  const std::string path = std::string(FLASHCORE_RESULTS) + "/small-grid-h200.json";
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  const nlohmann::json grid = nlohmann::json::parse(file);
  int rows = 0, right = 0, small_is_best = 0;
  for (const nlohmann::json& row : grid["rows"]) {
    double small = 0, next = 0;
    for (const nlohmann::json& cell : row["kernels"]) {
      if (!cell.contains("us")) continue;
      if (cell["kernel"] == "forward_small_sm90") small = cell["us"];
      if (cell["kernel"] == GetParam().kernel) next = cell["us"];
    }
    if (small == 0 || next == 0) continue;
    const SmallChoice choice =
        choose_small(problem(row["heads"], row["seqlen"], row["head_dim"], row["causal"]),
                     kMultiprocessors, GetParam().next);
    const double best = std::min(small, next);
    const double chosen = choice.is_small() ? small : next;
    EXPECT_LE(chosen, 1.1 * best) << row.dump();
    ++rows;
    right += chosen == best ? 1 : 0;
    small_is_best += small < next ? 1 : 0;
  }
  ASSERT_GE(rows, 48) << "what every report has";
  EXPECT_GE(right, 0.95 * rows);
  EXPECT_GT(small_is_best, 0) << "a recording in which one kernel is always best tests nothing";
  EXPECT_LT(small_is_best, rows) << "a recording in which one kernel is always best tests nothing";
}

TEST(SmallChoice, WorkCountsUnitsAndSteps) {
  const Work full = work_of(problem(8, 512, 64, false), 64, 256);
  EXPECT_EQ(full.units, 64);
  EXPECT_DOUBLE_EQ(full.longest, 2);
  EXPECT_DOUBLE_EQ(full.average, 2);
  const Work causal = work_of(problem(8, 512, 64, true), 64, 256);
  EXPECT_DOUBLE_EQ(causal.longest, 2);
  EXPECT_DOUBLE_EQ(causal.average, 1.5);
  EXPECT_EQ(work_of(problem(8, 0, 64, false), 64, 256).units, 0);
}

TEST_P(SmallGrid, AFullMachineIsTheOtherKernels) {
  const auto is_small = [](const ForwardProblem& p) {
    return choose_small(p, kMultiprocessors, GetParam().next).is_small();
  };
  EXPECT_TRUE(is_small(problem(8, 512, 64, false)));
  EXPECT_TRUE(is_small(problem(8, 512, 128, true)));
  EXPECT_FALSE(is_small(problem(256, 512, 64, false)));
  EXPECT_FALSE(is_small(problem(16, 16384, 128, true)));
}

TEST_P(SmallGrid, TimesGrowWithTheProblem) {
  for (const int64_t head_dim : {64, 96, 128}) {
    double small = 0, next = 0;
    for (int64_t heads = 1; heads <= 256; heads *= 2) {
      const SmallChoice choice =
          choose_small(problem(heads, 1024, head_dim, false), kMultiprocessors, GetParam().next);
      EXPECT_GE(choice.small_us, small);
      EXPECT_GE(choice.next_us, next);
      small = choice.small_us, next = choice.next_us;
    }
  }
}

}  // namespace
}  // namespace flashcore
