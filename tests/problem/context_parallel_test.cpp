// Plans of context parallelism: all ranks' plans together compute every visible pair once, and their transfers meet.
#include "flashcore/context_parallel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "problem/context_blocks.hpp"
#include "problem/visibility.hpp"

namespace flashcore {
namespace {

using ::testing::HasSubstr;
using Rows = std::vector<int64_t>;

std::vector<ContextPlan> plans_of(ContextProblem problem) {
  std::vector<ContextPlan> plans;
  for (problem.rank = 0; problem.rank < problem.world; ++problem.rank) {
    auto plan = make_context_plan(problem);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plans.push_back(*plan);
  }
  return plans;
}

int64_t total(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  return sum;
}

// The row of the whole tensor for each row of a rank's shard.
Rows shard_rows(const std::vector<ContextPiece>& pieces, int64_t rank) {
  Rows rows;
  for (const ContextPiece& piece : pieces) {
    if (piece.rank != rank) continue;
    EXPECT_EQ(piece.place, static_cast<int64_t>(rows.size()));
    for (int64_t i = 0; i < piece.rows; ++i) rows.push_back(piece.begin + i);
  }
  return rows;
}

Rows all_rows(int64_t count) {
  Rows rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(i);
  return rows;
}

using Counts = std::vector<std::vector<int>>;  // by query and key of the whole tensors

// What the definition says.
Counts visible_pairs(const ContextProblem& problem) {
  Counts seen(static_cast<size_t>(total(problem.seqlens_q)),
              std::vector<int>(static_cast<size_t>(total(problem.seqlens_kv))));
  const Band band{problem.window_left, problem.causal ? 0 : problem.window_right};
  int64_t q = 0;
  int64_t kv = 0;
  for (size_t document = 0; document < problem.seqlens_q.size(); ++document) {
    Sequence one{.len_q = problem.seqlens_q[document], .len_kv = problem.seqlens_kv[document]};
    if (problem.alignment == Alignment::bottom_right) one.offset = one.len_kv - one.len_q;
    for (int64_t i = 0; i < one.len_q; ++i) {
      const KeyRange keys = visible_keys(one, band, i);
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        seen[static_cast<size_t>(q + i)][static_cast<size_t>(kv + j)] = 1;
      }
    }
    q += one.len_q;
    kv += one.len_kv;
  }
  return seen;
}

// Adds the pairs of a call; `q` and `kv` are the whole tensors' rows for those that its blocks name.
void count_pairs(const ContextCall& call, const Rows& q, const Rows& kv, Counts& counts) {
  int64_t last_q = 0;
  int64_t last_kv = 0;
  for (const ContextBlock& block : call.blocks) {
    ASSERT_GE(block.q_begin, last_q);
    ASSERT_GE(block.kv_begin, last_kv);
    ASSERT_LT(block.q_begin, block.q_end);
    ASSERT_LT(block.kv_begin, block.kv_end);
    ASSERT_LE(block.q_end, static_cast<int64_t>(q.size()));
    ASSERT_LE(block.kv_end, static_cast<int64_t>(kv.size()));
    last_q = block.q_end;
    last_kv = block.kv_end;
    const Sequence one{.len_q = block.q_end - block.q_begin,
                       .len_kv = block.kv_end - block.kv_begin,
                       .offset = block.offset};
    for (int64_t i = 0; i < one.len_q; ++i) {
      const KeyRange keys = visible_keys(one, {call.window_left, call.window_right}, i);
      for (int64_t j = keys.begin; j < keys.end; ++j) {
        ++counts[static_cast<size_t>(q[static_cast<size_t>(block.q_begin + i)])]
                [static_cast<size_t>(kv[static_cast<size_t>(block.kv_begin + j)])];
      }
    }
  }
}

// The first call writes all rows, or everything is merged into what was initialised.
void check_first_call(const ContextPlan& plan, int64_t rows) {
  if (rows == 0 || plan.initialise) return;
  ASSERT_FALSE(plan.steps[0].calls.empty());
  const auto& blocks = plan.steps[0].calls[0].blocks;
  EXPECT_EQ(blocks.front().q_begin, 0);
  EXPECT_EQ(blocks.back().q_end, rows);
}

// Every send meets its receive, and each other rank's dK and dV come home once.
void check_transfers(const std::vector<ContextPlan>& plans) {
  const auto world = static_cast<int32_t>(plans.size());
  const auto step_of = [&](int32_t rank, size_t i) -> const ContextStep& {
    return plans[static_cast<size_t>(rank)].steps[i];
  };
  const size_t steps = plans[0].steps.size();
  std::vector<int> computed(plans.size(), 0);
  std::vector<int> home(plans.size(), 0);
  std::vector<int> sums(plans.size(), 0);  // contributions in the sum that a rank has
  for (size_t i = 0; i < steps; ++i) {
    std::map<std::pair<int32_t, int32_t>, int32_t> sent;  // from and to: whose K and V
    std::map<std::pair<int32_t, int32_t>, int> gradients;
    for (int32_t rank = 0; rank < world; ++rank) {
      const ContextStep& step = step_of(rank, i);
      const bool is_other = step.owner >= 0 && step.owner != rank;
      EXPECT_EQ(i == 0, step.owner == rank);
      EXPECT_TRUE(step.owner >= 0 || (step.calls.empty() && step.send_to == -1));
      EXPECT_EQ(step.gradient_to >= 0, is_other);
      if (is_other) {
        EXPECT_FALSE(step.calls.empty());
        ++computed[static_cast<size_t>(step.owner)];
        ++sums[static_cast<size_t>(rank)];
      }
      if (step.send_to >= 0) sent[{rank, step.send_to}] = step.owner;
      if (step.send_own_to >= 0) {
        EXPECT_FALSE(sent.contains({rank, step.send_own_to})) << "two messages between two ranks";
        sent[{rank, step.send_own_to}] = rank;
      }
      if (step.gradient_to >= 0) {
        gradients[{rank, step.gradient_to}] = sums[static_cast<size_t>(rank)];
      }
    }
    for (int32_t rank = 0; rank < world; ++rank) {
      const ContextStep& step = step_of(rank, i);
      EXPECT_EQ(step.receive_from >= 0, i + 1 < steps && step_of(rank, i + 1).owner >= 0);
      if (step.receive_from >= 0) {
        const auto found = sent.find({step.receive_from, rank});
        ASSERT_NE(found, sent.end());
        EXPECT_EQ(found->second, step_of(rank, i + 1).owner);
        sent.erase(found);
      }
      sums[static_cast<size_t>(rank)] = 0;
      if (step.gradient_from >= 0) {
        const auto found = gradients.find({step.gradient_from, rank});
        ASSERT_NE(found, gradients.end());
        EXPECT_EQ(step_of(step.gradient_from, i).owner, step_of(rank, i + 1).owner);
        sums[static_cast<size_t>(rank)] = found->second;
        gradients.erase(found);
      }
      if (step.gradient_home_from >= 0) {
        const auto found = gradients.find({step.gradient_home_from, rank});
        ASSERT_NE(found, gradients.end());
        EXPECT_EQ(step_of(step.gradient_home_from, i).owner, rank);
        home[static_cast<size_t>(rank)] += found->second;
        gradients.erase(found);
      }
    }
    EXPECT_TRUE(sent.empty());
    EXPECT_TRUE(gradients.empty());
  }
  EXPECT_EQ(home, computed);
}

void check_problem(const ContextProblem& problem) {
  const std::vector<ContextPlan> plans = plans_of(problem);
  Counts counts(static_cast<size_t>(total(problem.seqlens_q)),
                std::vector<int>(static_cast<size_t>(total(problem.seqlens_kv))));
  const Rows whole_q = all_rows(total(problem.seqlens_q));
  const Rows whole_kv = all_rows(total(problem.seqlens_kv));
  Rows together;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const ContextPlan& plan = plans[rank];
    ASSERT_EQ(plan.algorithm, plans[0].algorithm);
    const Rows q = shard_rows(plan.pieces_q, static_cast<int64_t>(rank));
    EXPECT_EQ(plan.rows_q, static_cast<int64_t>(q.size()));
    EXPECT_EQ(plan.rows_kv, std::ssize(shard_rows(plan.pieces_kv, static_cast<int64_t>(rank))));
    together.insert(together.end(), q.begin(), q.end());
    const bool all_queries = plan.algorithm == ContextAlgorithm::ulysses;
    check_first_call(plan, all_queries ? std::ssize(whole_q) : plan.rows_q);
    if (all_queries && rank > 0) continue;  // each has other heads of the same pairs
    for (const ContextStep& step : plan.steps) {
      const Rows kv = plan.algorithm == ContextAlgorithm::ring
                          ? shard_rows(plan.pieces_kv, step.owner)
                          : whole_kv;
      for (const ContextCall& call : step.calls) {
        EXPECT_LE(call.blocks.size(), problem.seqlens_q.size());
        count_pairs(call, all_queries ? whole_q : q, kv, counts);
      }
    }
  }
  std::sort(together.begin(), together.end());
  EXPECT_EQ(together, whole_q);
  EXPECT_EQ(counts, visible_pairs(problem));
  if (plans[0].algorithm == ContextAlgorithm::ring) check_transfers(plans);
}

ContextProblem random_problem(std::mt19937& random) {
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint32_t>(most + 1));
  };
  ContextProblem problem;
  problem.world = static_cast<int32_t>(1 + draw(7));
  problem.layout = static_cast<ContextLayout>(draw(1));
  problem.algorithm = static_cast<ContextAlgorithm>(draw(3));
  problem.heads_q = problem.heads_kv = 840;  // that all worlds divide
  problem.causal = draw(1) == 0;
  problem.alignment = static_cast<Alignment>(draw(1));
  if (draw(1) == 0) problem.window_left = draw(20);
  if (draw(1) == 0) problem.window_right = draw(20);
  const int64_t documents = draw(2) == 0 ? 2 + draw(5) : 1;
  for (int64_t i = 0; i < documents; ++i) {
    problem.seqlens_q.push_back(draw(documents == 1 ? 70 : 30));
    problem.seqlens_kv.push_back(draw(2) == 0 ? draw(60) : problem.seqlens_q.back());
  }
  return problem;
}

TEST(ContextParallel, ComputesEveryVisiblePairOnce) {
  std::mt19937 random(46);
  for (int i = 0; i < 3000; ++i) {
    const ContextProblem problem = random_problem(random);
    SCOPED_TRACE("problem " + std::to_string(i));
    check_problem(problem);
    if (::testing::Test::HasFailure()) return;
  }
}

ContextProblem problem_of(int32_t world, int64_t length) {
  ContextProblem problem;
  problem.world = world;
  problem.algorithm = ContextAlgorithm::ring;
  problem.seqlens_q = problem.seqlens_kv = {length};
  return problem;
}

TEST(ContextParallel, ACausalStepIsOneBlockUnderZigzag) {
  ContextProblem problem = problem_of(4, 803);
  problem.causal = true;
  for (const ContextPlan& plan : plans_of(problem)) {
    EXPECT_FALSE(plan.initialise);
    ASSERT_EQ(plan.steps.size(), 4u);
    for (const ContextStep& step : plan.steps) {
      ASSERT_EQ(step.calls.size(), 1u);
      EXPECT_EQ(step.calls[0].blocks.size(), 1u);
    }
    EXPECT_EQ(plan.steps[0].calls[0].window_right, 0);
    EXPECT_EQ(plan.steps[1].calls[0].window_right, -1);
  }
}

TEST(ContextParallel, DocumentsShareACall) {
  ContextProblem problem = problem_of(4, 0);
  problem.causal = true;
  problem.seqlens_q = problem.seqlens_kv = {800, 240, 1600};
  for (const ContextPlan& plan : plans_of(problem)) {
    for (const ContextStep& step : plan.steps) {
      ASSERT_EQ(step.calls.size(), 1u);
      EXPECT_EQ(step.calls[0].blocks.size(), 3u);
    }
  }
}

TEST(ContextParallel, RanksOutOfAWindowAreSkipped) {
  ContextProblem problem = problem_of(8, 800);
  problem.layout = ContextLayout::contiguous;
  problem.causal = true;
  problem.window_left = 150;
  for (const ContextPlan& plan : plans_of(problem)) EXPECT_EQ(plan.steps.size(), 3u);
  problem.causal = false;
  problem.window_left = problem.window_right = 50;
  for (const ContextPlan& plan : plans_of(problem)) EXPECT_EQ(plan.steps.size(), 3u);
  // The last rank's keys go to its left neighbour alone.
  EXPECT_EQ(plans_of(problem)[7].steps[0].send_to, -1);
  EXPECT_EQ(plans_of(problem)[7].steps[1].send_own_to, 6);
}

TEST(ContextParallel, AreasAreCounted) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto draw = [&](int64_t most) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(most + 1));
    };
    const context::Piece q{draw(40), 0, 1 + draw(20)};
    const context::Piece kv{draw(40), 0, 1 + draw(20)};
    const Band band{draw(1) == 0 ? -1 : draw(15), draw(1) == 0 ? -1 : draw(15)};
    double wanted = 0;
    const Sequence one{.len_q = q.rows, .len_kv = kv.rows, .offset = q.begin - kv.begin};
    for (int64_t row = 0; row < q.rows; ++row) {
      wanted += static_cast<double>(visible_keys(one, band, row).size());
    }
    double found = 0;
    for (const auto& block : context::blocks_of({q}, {kv}, band, 0)) {
      found += context::area_of(block);
    }
    ASSERT_EQ(found, wanted) << i;
  }
}

TEST(ContextParallel, PredictedTimesFollowBytesAndFlop) {
  ContextProblem problem = problem_of(4, 65536);
  problem.algorithm = ContextAlgorithm::automatic;
  problem.causal = true;
  problem.heads_q = 32;
  problem.heads_kv = 8;
  problem.link_bytes_per_second = 300e9;
  // Hours of compute hide all transfers of a ring; the other two begin after theirs.
  problem.flops_per_second = 1e9;
  auto plan = make_context_plan(problem);
  EXPECT_EQ(plan->algorithm, ContextAlgorithm::ring);
  const double flop = 2.0 * 256 * 32 * 65536 * 65537 / 2;
  EXPECT_NEAR(plan->seconds[0] / (flop / 4 / 1e9), 1, 1e-3);
  EXPECT_GT(plan->seconds[1], plan->seconds[0]);
  // Nothing but transfers: K and V of 8 heads three times; or Q and O of 8, K and V of 2 heads.
  problem.flops_per_second = 1e30;
  plan = make_context_plan(problem);
  const double row = 65536.0 / 4 * 256 * 2 / 300e9;
  EXPECT_NEAR(plan->seconds[0] / (3 * 8 * row), 1, 1e-6);
  EXPECT_NEAR(plan->seconds[1] / (3 * 8 * row), 1, 1e-6);
  EXPECT_NEAR(plan->seconds[2] / (3 * 10 * row), 1, 1e-6);
  // Contiguous, the last rank has seven sixteenths of the work.
  problem.layout = ContextLayout::contiguous;
  problem.flops_per_second = 1e9;
  plan = make_context_plan(problem);
  EXPECT_NEAR(plan->seconds[1] / (flop * 7 / 16 / 1e9), 1, 1e-3);
  problem.heads_kv = 1;
  problem.heads_q = 6;
  EXPECT_TRUE(std::isinf(make_context_plan(problem)->seconds[2]));
}

TEST(ContextParallel, RefusesWithOneSentence) {
  const auto message = [](auto change) {
    ContextProblem problem = problem_of(4, 100);
    change(problem);
    const auto plan = make_context_plan(problem);
    return plan.ok() ? "" : plan.status().message();
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_THAT(message([](auto& p) { p.world = 0; }), HasSubstr("world: is 0, wanted 1 to"));
  EXPECT_THAT(message([](auto& p) { p.rank = 4; }), HasSubstr("rank: is 4, wanted 0 to 3"));
  EXPECT_THAT(message([](auto& p) { p.seqlens_q = {-1}; }), HasSubstr("seqlens_q: has -1"));
  EXPECT_THAT(message([](auto& p) { p.seqlens_kv = {5, 5}; }), HasSubstr("2 documents"));
  EXPECT_THAT(message([](auto& p) { p.window_left = -2; }), HasSubstr("window: has -2"));
  EXPECT_THAT(message([](auto& p) { p.heads_kv = 3; }), HasSubstr("heads_kv: is 3"));
  EXPECT_THAT(message([](auto& p) { p.link_bytes_per_second = 0; }), HasSubstr("link_bytes"));
  EXPECT_THAT(message([](auto& p) { p.alignment = Alignment::given; }), HasSubstr("alignment"));
  EXPECT_THAT(message([](auto& p) {
                p.algorithm = ContextAlgorithm::ulysses;
                p.heads_q = 6;
              }),
              HasSubstr("ulysses has 6 query heads"));
}

}  // namespace
}  // namespace flashcore
