// What of backward_sm90:wide needs no GPU: its tiles and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "cuda/backward_sm90/wide/config.hpp"
#include "cuda/backward_sm90/wide/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::backward_sm90::wide {
namespace {

struct Banded {
  int queries;
  BandLimits limits;
};

Banded random_band(std::mt19937_64& random) {
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const int keys = static_cast<int>(1 + below(500));
  const int64_t left = below(3) == 0 ? -1 : below(300), right = below(3) == 0 ? -1 : below(300);
  return {static_cast<int>(1 + below(500)),
          attention::band_limits(left, right, below(600) - 300, keys)};
}

// Calls f(visited, mask_free, query, key) for all pairs of a problem and both kinds of blocks.
template <class F>
void for_each_pair(const Banded& band, F f) {
  const auto [queries, limits] = band;
  for (int key = 0; key < limits.len_kv; ++key) {
    const TileRange steps = query_steps(limits, queries, key / kRows);
    for (int query = 0; query < queries; ++query) {
      const int step = query / kRows, tile = key / kRows;
      const TileRange tiles = key_tiles(limits, queries, query / kBlockQ);
      const bool of_key = step >= steps.begin && step < steps.end;
      const bool of_query = tile >= tiles.begin && tile < tiles.end;
      f(of_key, of_key && !steps.needs_mask(step), query, key);
      f(of_query, of_query && !tiles.needs_mask(tile), query, key);
    }
  }
}

TEST(BackwardSm90Wide, BlocksHoldWhatTheySee) {
  std::mt19937_64 random(1);
  int64_t visible = 0, free = 0;
  for (int round = 0; round < 40; ++round) {
    const Banded band = random_band(random);
    for_each_pair(band, [&](bool visited, bool mask_free, int query, int key) {
      const bool sees = key - query >= band.limits.low && key - query <= band.limits.high;
      ASSERT_TRUE(visited || !sees) << query << ", " << key;
      ASSERT_TRUE(sees || !mask_free) << query << ", " << key;
      visible += sees ? 1 : 0;
      free += mask_free ? 1 : 0;
    });
  }
  EXPECT_GT(visible, 500000);
  EXPECT_GT(free, 50000);
}

// Rows past the last key are in a tile that looks at its pairs; rows past the last query have no
// weights.
TEST(BackwardSm90Wide, TilesWithRowsPastTheLastKeyNeedTheirMask) {
  const BandLimits limits = attention::band_limits(-1, -1, 0, 100);
  const TileRange last = query_steps(limits, 300, 1);
  ASSERT_FALSE(last.empty());
  for (int step = last.begin; step < last.end; ++step) EXPECT_TRUE(last.needs_mask(step));
  const TileRange tiles = key_tiles(limits, 300, 0);
  EXPECT_FALSE(tiles.needs_mask(0));
  EXPECT_TRUE(tiles.needs_mask(1));
}

TEST(BackwardSm90Wide, TilesOfAHeadComeInAscendingOrder) {
  for (const bool longest_first : {false, true}) {
    const attention::TileOrder order{
        .batch_heads = 7, .q_tiles = 5, .section_heads = 3, .longest_first = longest_first};
    int next[7] = {};
    for (uint32_t i = 0; i < order.size(); ++i) {
      const KeyTile place = key_tile(order, i);
      EXPECT_EQ(place.tile, next[place.batch_head]++) << i;
    }
    EXPECT_THAT(next, testing::Each(5));
  }
}

TEST(BackwardSm90Wide, LeavesTwoNarrowHeadDimensionsToOtherTiles) {
  const auto refused = [](int64_t qk, int64_t v) {
    return tests::refusal(supports(), tests::dense_gradients(DType::bf16, qk, v));
  };
  EXPECT_EQ(refused(8, 136), "");
  EXPECT_EQ(refused(136, 8), "");
  EXPECT_EQ(refused(128, 128),
            "q: head dimension is 128 and v's is 128, wanted one of them above 128");
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm90::wide
