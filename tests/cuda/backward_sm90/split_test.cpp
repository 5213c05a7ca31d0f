// What of backward_sm90:split needs no GPU: parts of tiles, who stores what, and when tiles are split.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "cuda/backward_sm90/throughput/split/config.hpp"
#include "cuda/backward_sm90/throughput/split/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::backward_sm90::split {
namespace {

TEST(BackwardSm90Split, BlocksHaveEachStepOnce) {
  for (const int splits : kSplits) {
    for (int steps = 0; steps < 300; ++steps) {
      std::multiset<int> visited;
      for (int rank = 0; rank < splits; ++rank) {
        const int own = steps_of(steps, splits, rank);
        ASSERT_LE(own, (steps + splits - 1) / splits);
        for (int i = 0; i < own; ++i) visited.insert(rank + i * splits);
      }
      int next = 0;
      for (const int step : visited) ASSERT_EQ(step, next++) << steps;
      ASSERT_EQ(next, steps);
    }
  }
}

// All sums of a tile have one block that stores them, which gets them from each other block at a place of its own.
TEST(BackwardSm90Split, SumsHaveOneOwnerAndPlacesOfTheirOwn) {
  for (const int splits : kSplits) {
    std::set<std::pair<int, int>> stored;  // (owner, group): a consumer stores one of the two
    for (const Sums sums : {Sums::dv, Sums::dk}) {
      for (int group = 0; group < kConsumers; ++group) {
        const int owner = owner_of(sums, group, splits);
        ASSERT_TRUE(owner >= 0 && owner < splits);
        EXPECT_TRUE(stored.insert({owner, group}).second);
        std::set<int> senders;
        for (int rank = 0; rank < splits; ++rank) {
          if (rank != owner) senders.insert(sender_of(rank, owner));
        }
        EXPECT_EQ(static_cast<int>(senders.size()), splits - 1);
        EXPECT_EQ(*senders.begin(), 0);
        EXPECT_EQ(*senders.rbegin(), splits - 2);
      }
    }
    // As many consumers of a block store as it has room for.
    for (int rank = 0; rank < splits; ++rank) {
      int own = 0;
      for (const auto& [owner, group] : stored) own += owner == rank ? 1 : 0;
      EXPECT_EQ(own, groups_sent(splits));
    }
  }
}

TEST(BackwardSm90Split, TilesAreSplitAsFarAsThereAreMultiprocessors) {
  EXPECT_EQ(fewest_steps(16, 40, 132), 4);
  EXPECT_EQ(fewest_steps(60, 40, 132), 2);
  EXPECT_EQ(fewest_steps(16, 2, 132), 2);  // there is nothing more to share
}

TEST(BackwardSm90Split, HeadsOfQueriesThatShareKeysAreSteps) {
  tests::AskedGradients asked = tests::dense_gradients(DType::bf16, 128, 128);
  Problem& p = asked.problem;
  p.k = p.v = asked.gradients.dk = asked.gradients.dv =
      TensorDesc::contiguous(DType::bf16, {1, 2, 100, 128});
  const auto splits = [&](int64_t heads) {
    p.q = p.o = TensorDesc::contiguous(DType::bf16, {1, heads, 100, 128});
    p.lse = TensorDesc::contiguous(DType::f32, {1, heads, 100});
    asked.gradients.d_o = asked.gradients.dq = p.q;
    return splits_of(tests::resolved(asked).forward, 132);
  };
  EXPECT_EQ(splits(16), 4);
  EXPECT_EQ(splits(2), 2);
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm90::split
