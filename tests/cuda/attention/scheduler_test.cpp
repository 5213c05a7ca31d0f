// The order of query tiles for persistent blocks: every tile once, longest first within a section,
// and all tiles of a section before those of the next.
#include "cuda/attention/scheduler.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace flashcore::cuda::attention {
namespace {

static_assert(TileOrder{.batch_heads = 2, .q_tiles = 3, .section_heads = 2}.at(0).q_tile == 2);

class TileOrderTest : public testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  TileOrder order() const {
    const auto [heads, tiles, section] = GetParam();
    return {.batch_heads = heads, .q_tiles = tiles, .section_heads = section};
  }
};

TEST_P(TileOrderTest, VisitsEveryTileOnce) {
  std::set<std::pair<int64_t, int>> seen;
  for (int64_t i = 0; i < order().size(); ++i) {
    const QueryTile tile = order().at(i);
    EXPECT_TRUE(tile.batch_head >= 0 && tile.batch_head < order().batch_heads);
    EXPECT_TRUE(tile.q_tile >= 0 && tile.q_tile < order().q_tiles);
    EXPECT_TRUE(seen.emplace(tile.batch_head, tile.q_tile).second) << "tile " << i << " again";
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), order().batch_heads * order().q_tiles);
}

TEST_P(TileOrderTest, GoesLongestFirstWithinASectionAndSectionBySection) {
  int64_t last_section = 0;
  int last_tile = order().q_tiles;
  for (int64_t i = 0; i < order().size(); ++i) {
    const QueryTile tile = order().at(i);
    const int64_t section = tile.batch_head / order().section_heads;
    EXPECT_GE(section, last_section);
    if (section != last_section) last_tile = order().q_tiles;
    EXPECT_LE(tile.q_tile, last_tile);
    last_section = section;
    last_tile = tile.q_tile;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TileOrderTest,
                         testing::Combine(testing::Values(1, 2, 7, 16),
                                          testing::Values(1, 3, 8, 33),
                                          testing::Values(1, 2, 3, 16)));

TEST(TileOrder, OneSectionIsStrictlyLongestFirst) {
  const TileOrder order{.batch_heads = 5, .q_tiles = 4, .section_heads = 5};
  for (int64_t i = 0; i < order.size(); ++i) EXPECT_EQ(order.at(i).q_tile, 3 - i / 5);
}

TEST(TileOrder, IndexesPastThirtyTwoBits) {
  const TileOrder order{
      .batch_heads = int64_t{1} << 33, .q_tiles = 2, .section_heads = int64_t{1} << 33};
  const QueryTile tile = order.at((int64_t{1} << 33) + 5);
  EXPECT_EQ(tile.batch_head, 5);
  EXPECT_EQ(tile.q_tile, 0);
}

TEST(HeadsInL2, StaysBetweenOneAndAll) {
  EXPECT_EQ(heads_in_l2(16, 1 << 20, 4 << 20), 4);
  EXPECT_EQ(heads_in_l2(16, 8 << 20, 4 << 20), 1);
  EXPECT_EQ(heads_in_l2(16, 1, 4 << 20), 16);
  EXPECT_EQ(heads_in_l2(16, 0, 4 << 20), 16);
  EXPECT_EQ(heads_in_l2(0, 1 << 20, 4 << 20), 1);
}

}  // namespace
}  // namespace flashcore::cuda::attention
