// The rules that choose between forward_sm90_latency, forward_sm90_latency_wide and the kernel
// after them, and between forward_sm80_latency and forward_sm80_throughput, against what was
// measured: flashcore_small_grid's recording is replayed.
#include "tuning/small_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace flashcore::tuning {
namespace {

// Of the GPU that was measured.
constexpr int64_t kMultiprocessors = 132, kSharedMemory = 227 * 1024;

ForwardProblem problem(int64_t heads, int64_t seqlen, int64_t head_dim, bool causal,
                       DType dtype = DType::bf16) {
  ForwardProblem p;
  p.dtype = dtype;
  p.batch = 1;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = p.seqlen_kv = seqlen;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.softmax_scale = 1 / std::sqrt(static_cast<float>(head_dim));
  if (causal) p.band.right = 0;
  return p;
}

struct Next {
  const char* kernel;
  NextKernel next;
  int right;  // rows of the recording
};

class SmallGrid : public testing::TestWithParam<Next> {};

INSTANTIATE_TEST_SUITE_P(
    Recorded, SmallGrid,
    testing::Values(Next{"forward_sm80_throughput", NextKernel::forward_sm80_throughput, 134},
                    Next{"forward_sm90_throughput", NextKernel::forward_sm90_throughput, 132}));

// Replays the recording: `choose` between the kernels `small`, `medium` (which may be none) and
// `next`.
template <class Choose>
void expect_right(const std::string& small_name, const std::string& medium_name,
                  const std::string& next_name, int published, const Choose& choose) {
  const std::string path = std::string(FLASHCORE_RESULTS) + "/small-grid-h200.json";
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  const nlohmann::json grid = nlohmann::json::parse(file);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  int rows = 0, right = 0;
  std::set<std::string> best_ones;
  for (const nlohmann::json& row : grid["rows"]) {
    double small = kNever, medium = kNever, next = kNever;
    for (const nlohmann::json& cell : row["kernels"]) {
      if (!cell.contains("us")) continue;
      if (cell["kernel"] == small_name) small = cell["us"];
      if (cell["kernel"] == medium_name) medium = cell["us"];
      if (cell["kernel"] == next_name) next = cell["us"];
    }
    if (small == kNever || next == kNever) continue;
    if (row["head_dim"] <= 64) medium = kNever;
    const SmallChoice choice =
        choose(problem(row["heads"], row["seqlen"], row["head_dim"], row["causal"],
                       row["dtype"] == "f16" ? DType::f16 : DType::bf16));
    const double best = std::min({small, medium, next});
    const double chosen = choice.is_small() ? small : choice.is_medium() ? medium : next;
    EXPECT_LE(chosen, 1.05 * best) << row.dump();
    ++rows;
    right += chosen == best ? 1 : 0;
    best_ones.insert(small == best ? "small" : medium == best ? "medium" : "next");
  }
  ASSERT_GE(rows, 48) << "what every report has";
  EXPECT_GE(right, 0.95 * rows);
  EXPECT_GE(right, published) << "docs/forward-latency.md says so of this recording";
  EXPECT_EQ(best_ones.size(), medium_name.empty() ? 2U : 3U)
      << "a recording in which a kernel is never best tests nothing";
}

TEST_P(SmallGrid, TheChoiceIsRight) {
  expect_right(
      "forward_sm90_latency", "forward_sm90_latency_wide", GetParam().kernel, GetParam().right,
      [](const ForwardProblem& p) { return choose_small(p, kMultiprocessors, GetParam().next); });
}

TEST(SmallSm80Choice, IsRight) {
  expect_right("forward_sm80_latency", "", "forward_sm80_throughput", 134,
               [](const ForwardProblem& p) {
                 return choose_small_sm80(p, kMultiprocessors, kSharedMemory);
               });
}

// As its plan decides; two blocks of four warps on an SM where a block may have twice their memory.
TEST(SmallSm80Choice, ShapesFollowThePlan) {
  const auto shape = [](const ForwardProblem& p, int64_t multiprocessors, int64_t kilobytes) {
    const UnitShape one = small_sm80_shape(p, multiprocessors, kilobytes * 1024);
    EXPECT_EQ(one.block_q, 32);
    return std::pair(one.step_keys, one.unit_sms);
  };
  EXPECT_EQ(shape(problem(8, 512, 64, false), 132, 227), std::pair(int64_t{512}, 1.0));
  EXPECT_EQ(shape(problem(16, 512, 64, false), 132, 227), std::pair(int64_t{256}, 0.5));
  EXPECT_EQ(shape(problem(8, 512, 64, false), 108, 163), std::pair(int64_t{256}, 0.5));
  EXPECT_EQ(shape(problem(8, 512, 64, false), 142, 99), std::pair(int64_t{256}, 1.0));
  EXPECT_EQ(shape(problem(8, 512, 128, false), 132, 227), std::pair(int64_t{256}, 1.0));
}

TEST(SmallSm80Choice, IsForFewBlocks) {
  const auto is_small = [](const ForwardProblem& p, int64_t multiprocessors, int64_t kilobytes) {
    return choose_small_sm80(p, multiprocessors, kilobytes * 1024).is_small();
  };
  for (const auto& [multiprocessors, kilobytes] : {std::pair{108, 163}, {142, 99}, {132, 227}}) {
    EXPECT_TRUE(is_small(problem(8, 512, 64, false), multiprocessors, kilobytes));
    EXPECT_FALSE(is_small(problem(32, 1024, 128, false), multiprocessors, kilobytes));
    EXPECT_FALSE(is_small(problem(256, 4096, 64, false), multiprocessors, kilobytes));
  }
  EXPECT_FALSE(is_small(problem(8, 512, 64, false), 20, 99))
      << "more waves than of forward_sm80_throughput";
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

TEST_P(SmallGrid, MoreQueriesABlockAreForWideHeads) {
  const auto choice = [](const ForwardProblem& p) {
    return choose_small(p, kMultiprocessors, GetParam().next);
  };
  EXPECT_TRUE(choice(problem(8, 1024, 128, false)).is_medium());
  EXPECT_FALSE(choice(problem(8, 512, 128, false)).is_medium());
  for (const int64_t heads : {8, 16, 32, 64}) {
    EXPECT_FALSE(choice(problem(heads, 1024, 64, false)).is_medium()) << heads;
  }
  EXPECT_TRUE(choice(problem(8, 128, 128, false)).is_medium()) << "one step of keys";
  const SmallChoice larger = choice(problem(256, 4096, 128, false));
  EXPECT_FALSE(larger.is_small() || larger.is_medium());
}

// As plans decide how many blocks work on a tile of queries.
TEST(SmallChoice, ShapesFollowThePlans) {
  EXPECT_EQ(small_shape(problem(8, 512, 64, false), kMultiprocessors).unit_sms, 2);
  EXPECT_EQ(small_shape(problem(32, 512, 64, false), kMultiprocessors).unit_sms, 2);
  EXPECT_EQ(small_shape(problem(32, 256, 64, false), kMultiprocessors).unit_sms, 1);
  EXPECT_EQ(small_shape(problem(16, 256, 64, false), kMultiprocessors).unit_sms, 2);
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
}  // namespace flashcore::tuning
