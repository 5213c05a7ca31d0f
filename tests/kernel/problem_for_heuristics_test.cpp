// The inputs of the choice: never the batch if batch invariance is promised, and at most
// a hint otherwise.
#include "kernel/problem_for_heuristics.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "cuda/forward_sm80/throughput/supports.hpp"

namespace flashcore {
namespace {

ForwardProblem packed(int64_t batch, int64_t total_q, int64_t total_kv, int64_t longest_q,
                      int64_t longest_kv) {
  ForwardProblem p;
  p.packed = true;
  p.batch = batch;
  p.heads_q = p.heads_kv = 8;
  p.head_dim_qk = p.head_dim_v = 64;
  p.total_q = total_q, p.total_kv = total_kv;
  p.seqlen_q = longest_q, p.seqlen_kv = longest_kv;
  return p;
}

std::tuple<int64_t, int64_t, int64_t> seen(const ForwardProblem& p) {
  const ForwardProblem s = problem_for_heuristics(p, {});
  return {s.batch, s.seqlen_q, s.seqlen_kv};
}

TEST(ProblemForHeuristics, EqualEntriesAreTheSameWithAHintAndWithout) {
  const auto wanted = std::tuple<int64_t, int64_t, int64_t>{256, 128, 128};
  EXPECT_EQ(seen(packed(256, 32768, 32768, 32768, 32768)), wanted);
  EXPECT_EQ(seen(packed(256, 32768, 32768, 128, 128)), wanted);
}

TEST(ProblemForHeuristics, OneLongEntryIsWhatCountsWhereItIsKnown) {
  const auto [batch, q, kv] = seen(packed(256, 16384 + 255 * 64, 16384 + 255 * 64, 16384, 16384));
  EXPECT_EQ(batch, 2);
  EXPECT_NEAR(static_cast<double>(q), 16384, 100);
  EXPECT_EQ(q, kv);
}

TEST(ProblemForHeuristics, AnyPackedBatchHasLengths) {
  for (const int64_t batch : {0, 1, 2, 1000}) {
    for (const int64_t total : {0, 1, 7, 1 << 28}) {
      for (const int64_t longest : {int64_t{0}, total / 2, total}) {
        const auto [entries, q, kv] = seen(packed(batch, total, total, longest, longest));
        EXPECT_GE(entries, 1);
        EXPECT_GE(q, 0);
        EXPECT_LE(q, total);
        EXPECT_LE(kv, total);
      }
    }
  }
}

TEST(ProblemForHeuristics, NothingOfTheBatchWhereThatIsPromised) {
  PlanContext context;
  context.batch_invariant = true;
  ForwardProblem dense = packed(3, 0, 0, 1, 9000);
  dense.packed = false;
  ForwardProblem padded = dense;
  padded.batch = 1, padded.seqlen_q = 77, padded.seqlens_kv.present = true;
  for (const ForwardProblem& p :
       {packed(256, 32768, 32768, 128, 128), packed(1, 1, 100000, 1, 100000), dense, padded}) {
    const ForwardProblem s = problem_for_heuristics(p, context);
    EXPECT_EQ(s.batch, 1);
    EXPECT_EQ(s.seqlen_q, 4096);
    EXPECT_EQ(s.seqlen_kv, 4096);
    EXPECT_FALSE(s.packed || s.seqlens_q.present || s.seqlens_kv.present);
    EXPECT_EQ(s.heads_q, p.heads_q);
  }
}

TEST(ProblemForHeuristics, DenseBatchesAreAsTheyAre) {
  ForwardProblem dense = packed(3, 0, 0, 5, 9000);
  dense.packed = false;
  EXPECT_EQ(seen(dense), (std::tuple<int64_t, int64_t, int64_t>{3, 5, 9000}));
}

}  // namespace
}  // namespace flashcore
