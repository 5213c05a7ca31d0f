// The order of query tiles: every tile once; longest first within a section, and all tiles of a
// section before the next section's; or head by head.
#include "cuda/attention/scheduler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

namespace flashcore::cuda::attention {
namespace {

class TileOrderTest : public testing::TestWithParam<std::tuple<uint32_t, uint32_t, uint32_t>> {
 protected:
  TileOrder order() const {
    const auto [heads, tiles, section] = GetParam();
    return {.batch_heads = heads,
            .q_tiles = tiles,
            .section_heads = std::min(section, heads),
            .longest_first = true};
  }
};

TEST_P(TileOrderTest, TakesEveryTileOnceLongestFirstWithinASection) {
  const TileOrder order = this->order();
  const uint32_t section_tiles = order.section_heads * order.q_tiles;
  std::set<std::pair<uint32_t, uint32_t>> seen;
  uint32_t before = 0;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const TileOrder::Place place = order.at(i);
    ASSERT_LT(place.batch_head, order.batch_heads);
    ASSERT_LT(place.q_tile, order.q_tiles);
    ASSERT_TRUE(seen.emplace(place.batch_head, place.q_tile).second) << "tile " << i << " again";
    ASSERT_EQ(place.batch_head / order.section_heads, i / section_tiles);
    ASSERT_TRUE(i % section_tiles == 0 || place.q_tile <= before);
    before = place.q_tile;
  }
  ASSERT_EQ(seen.size(), order.size());
}

TEST_P(TileOrderTest, DividesByWhatItSays) {
  const TileOrder order = this->order();
  for (uint32_t i = 0; i < order.size(); ++i) {
    using By = TileOrder::By;
    const TileOrder::Place place = order.at(i, [&](By by, uint32_t n, uint32_t d) {
      EXPECT_NE(by, By::tiles);
      EXPECT_TRUE(by != By::section || d == order.section_heads * order.q_tiles);
      EXPECT_TRUE(by != By::heads || (d >= 1 && d <= order.section_heads));
      return n / d;
    });
    ASSERT_EQ(place.batch_head, order.at(i).batch_head);
    ASSERT_EQ(place.q_tile, order.at(i).q_tile);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TileOrderTest,
                         testing::Combine(testing::Values(1U, 2U, 5U, 7U, 16U),
                                          testing::Values(1U, 3U, 8U, 33U),
                                          testing::Values(1U, 2U, 3U, 16U)));

TEST(TileOrder, OneSectionIsStrictlyLongestFirst) {
  const TileOrder order{5, 4, 5, true};
  for (uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order.at(i).q_tile, 3 - i / 5);
}

TEST(TileOrder, PlainlyTakesTheTilesOfAHeadTogether) {
  const TileOrder order{7, 5, 1, false};
  for (uint32_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order.at(i).batch_head, i / 5);
    EXPECT_EQ(order.at(i).q_tile, i % 5);
  }
}

TEST(SectionHeads, AreWholeGroupsBetweenOneAndAllHeads) {
  EXPECT_EQ(section_heads(65536, 16384, 1, 32), 4U);
  EXPECT_EQ(section_heads(65536, 16384, 8, 32), 32U);
  EXPECT_EQ(section_heads(65536, 16384, 2, 32), 8U);
  EXPECT_EQ(section_heads(65536, 65537, 4, 32), 1U) << "longer than a section";
  EXPECT_EQ(section_heads(65536, 1, 1, 32), 32U);
  EXPECT_EQ(section_heads(65536, 0, 1, 32), 32U);
  EXPECT_EQ(section_heads(1U << 24, 1, 1U << 20, 1U << 30), 1U << 30);
  EXPECT_EQ(section_heads(65536, 16384, 1, 0), 1U) << "no division by 0 follows";
}

}  // namespace
}  // namespace flashcore::cuda::attention
