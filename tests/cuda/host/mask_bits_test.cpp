// Packed masks without a GPU: the words that a launch writes lie apart and inside the workspace.
#include "cuda/host/mask_bits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace flashcore::cuda::host {
namespace {

using attention::BitsAlong;

struct Extents {
  int64_t batch, heads, queries, keys;
};

ForwardProblem masked(const Extents& mask) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::f16, {3, 4, 150, 64});
  p.k = p.v = TensorDesc::contiguous(DType::f16, {3, 2, 300, 64});
  p.mask =
      TensorDesc::contiguous(DType::boolean, {mask.batch, mask.heads, mask.queries, mask.keys});
  const Result<ForwardProblem> resolved = resolve(p);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return *resolved;
}

// The word of each distinct row and word column: each once, and all of the workspace.
void expect_all_words_once(const MaskBitsPlan& plan, int64_t rows, int64_t columns,
                           int64_t row_step, int64_t column_step) {
  const attention::PackMask& p = plan.params;
  std::vector<int> seen(static_cast<size_t>(plan.words));
  for (int64_t batch = 0; batch < p.batches; ++batch) {
    for (int64_t head = 0; head < p.heads; ++head) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          const int64_t place =
              batch * p.bits.batch + head * p.bits.head + row * row_step + column * column_step;
          ASSERT_GE(place, 0);
          ASSERT_LT(place, plan.words);
          ++seen[static_cast<size_t>(place)];
        }
      }
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), plan.words);
}

TEST(MaskBits, WordsAlongKeysAreThoseOfEachDistinctQuery) {
  for (const Extents& mask : {Extents{3, 4, 150, 300}, {3, 1, 150, 300}, {1, 4, 1, 300}}) {
    const MaskBitsPlan plan = plan_mask_bits(masked(mask), BitsAlong::keys);
    EXPECT_EQ(plan.words, mask.batch * mask.heads * mask.queries * 12);
    expect_all_words_once(plan, mask.queries, 12, plan.params.bits.query, plan.params.bits.key);
  }
}

TEST(MaskBits, WordsAlongQueriesAreThoseOfEachKeyAndFillUpTiles) {
  for (const Extents& mask : {Extents{3, 4, 150, 300}, {1, 1, 150, 1}, {3, 1, 1, 300}}) {
    const MaskBitsPlan plan = plan_mask_bits(masked(mask), BitsAlong::queries);
    const int64_t groups = mask.queries == 1 ? 1 : 8;
    EXPECT_EQ(plan.words, mask.batch * mask.heads * groups * 384);
    expect_all_words_once(plan, groups, 384, plan.params.bits.query, plan.params.bits.key);
  }
}

TEST(MaskBits, WarpsOfTheLaunchHaveAllKeysAndQueries) {
  for (const BitsAlong along : {BitsAlong::keys, BitsAlong::queries}) {
    const MaskBitsPlan plan = plan_mask_bits(masked({3, 1, 150, 300}), along);
    EXPECT_GE(plan.params.query_groups * attention::kPackedQueries, 150);
    EXPECT_GE(plan.params.key_groups * attention::kPackedKeys, 300);
    EXPECT_GE(plan.blocks * attention::kPackWarps, plan.params.warps());
    EXPECT_LT((plan.blocks - 1) * attention::kPackWarps, plan.params.warps());
  }
}

// Four keys are read at once only where each four begin at a multiple of four bytes.
TEST(MaskBits, FourKeysAreReadAtOnceWhereTheyBeginSo) {
  for (const bool whole : {false, true}) {
    attention::PackMask params =
        plan_mask_bits(masked({1, 1, 150, 300}), BitsAlong::queries).params;
    if (!whole) ++params.query;
    bind_mask_bits(params, reinterpret_cast<const void*>(0x1000), nullptr);
    EXPECT_EQ(params.four_keys, whole);
    bind_mask_bits(params, reinterpret_cast<const void*>(0x1002), nullptr);
    EXPECT_FALSE(params.four_keys);
  }
}

}  // namespace
}  // namespace flashcore::cuda::host
