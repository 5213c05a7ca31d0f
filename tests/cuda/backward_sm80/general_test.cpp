// What of backward_sm80 needs no GPU: its table of tiles, the band seen from keys, and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/sides.hpp"
#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/backward_sm80/general/joint_sums.hpp"
#include "cuda/backward_sm80/general/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::backward_sm80::general {
namespace {

using testing::HasSubstr;

// ---- the resource page

TEST(BackwardSm80Config, EveryHeadDimensionGetsTheSmallestTileThatHoldsIt) {
  for (const bool fp32 : {false, true}) {
    for (int head_dim = 1; head_dim <= kLargestHeadDim; ++head_dim) {
      const int chosen = config_index(fp32, head_dim);
      ASSERT_GE(chosen, 0) << head_dim;
      const Config& config = kConfigs[static_cast<size_t>(chosen)];
      EXPECT_EQ(config.element_bytes, fp32 ? 4 : 2);
      EXPECT_GE(config.head_dim, head_dim);
      if (head_dim > 64) {
        EXPECT_LT(config.head_dim, 2 * head_dim);
      }
    }
    EXPECT_EQ(config_index(fp32, kLargestHeadDim + 1), -1);
  }
}

TEST(BackwardSm80Config, TilesFitTheSmallestSharedMemoryAndTheStagingOfOutputs) {
  for (int i = 0; i < static_cast<int>(kConfigs.size()); ++i) {
    for (const Features features : {Features::none, Features::all}) {
      const Config config = config_of(i, features);
      EXPECT_LE(config.smem_bytes(), 99 * 1024) << i;
      EXPECT_GE(2 * config.x_bytes(), config.block_x() * config.head_dim * 4) << i;
      EXPECT_EQ(config.block_y % 16, 0) << i;
      EXPECT_EQ(config.threads() % (config.head_dim * config.element_bytes / 16), 0) << i;
    }
  }
}

TEST(BackwardSm80Config, OnlyWideSumsAreWrittenApart) {
  EXPECT_TRUE(has_both(kConfigs[0]) && has_both(kConfigs[1]) && has_both(kConfigs[3]));
  EXPECT_FALSE(has_both(kConfigs[2]) || has_both(kConfigs[4]) || has_both(kConfigs[5]));
}

// ---- joint kernels

TEST(BackwardSm80Joint, ATileOfKeysFitsTheSharedMemory) {
  constexpr int kMost[] = {99 * 1024, 99 * 1024, 227 * 1024, 163 * 1024};
  for (int i = 0; i < static_cast<int>(kJointConfigs.size()); ++i) {
    for (const Features features : {Features::none, Features::all}) {
      const JointConfig config = joint_config_of(i, features);
      EXPECT_LE(config.smem_bytes(), kMost[i]) << i;
      EXPECT_EQ(config.step_q % 16, 0) << i;
      EXPECT_EQ(config.block_q % (config.step_q * config.sharing), 0) << i;
      // dQ is stored by the same tiles of both, and rows are staged where keys and values were.
      EXPECT_EQ(config.block_q, kJointConfigs[static_cast<size_t>(i)].block_q) << i;
      EXPECT_EQ(config.warps, kJointConfigs[static_cast<size_t>(i)].warps) << i;
      EXPECT_GE(2 * config.kv_bytes(), config.warps * 16 * config.head_dim / config.sharing * 4)
          << i;
    }
  }
  for (int head_dim = 1; head_dim <= kLargestHeadDim; ++head_dim) {
    for (const auto& [hopper_code, shared] :
         {std::pair{false, 163 * 1024}, {false, 99 * 1024}, {true, 227 * 1024}}) {
      const int index = joint_config_index(head_dim, hopper_code, shared);
      EXPECT_EQ(index == -1, head_dim > 128 && shared < 100 * 1024) << head_dim;
      if (index < 0) continue;
      EXPECT_GE(kJointConfigs[static_cast<size_t>(index)].head_dim, head_dim);
      EXPECT_LE(joint_config_of(index, Features::none).smem_bytes(), shared) << head_dim;
      EXPECT_LE(joint_config_of(index, Features::all).smem_bytes(), shared) << head_dim;
      EXPECT_EQ(index == 2, hopper_code && head_dim > 64 && head_dim <= 128) << head_dim;
    }
  }
  EXPECT_EQ(joint_config_index(kLargestHeadDim + 1, true, 227 * 1024), -1);
}

// What warps add, product by product, is what each place of dQ is read from, once.
template <int kIndex>
void expect_whole_tile() {
  constexpr JointConfig kConfig = kJointConfigs[kIndex];
  using Sums = JointSums<kConfig>;
  std::vector<int> seen(static_cast<size_t>(Sums::kTileElements / 128));
  for (int warp = 0; warp < kConfig.warps; ++warp) {
    for (int row_tile = 0; row_tile < 2; ++row_tile) {
      for (int column = 0; column < Sums::kColumns; ++column) {
        const int offset = Sums::offset(warp, row_tile, column);
        EXPECT_EQ(offset, Sums::product_offset(Sums::first_row_tile(warp) + row_tile,
                                               Sums::first_column(warp) + column));
        ++seen[static_cast<size_t>(offset / 128)];
      }
    }
  }
  EXPECT_THAT(seen, testing::Each(1));
}

TEST(BackwardSm80Joint, EveryPartOfATileOfDqHasOnePlace) {
  expect_whole_tile<0>();
  expect_whole_tile<1>();
  expect_whole_tile<2>();
  expect_whole_tile<3>();
}

// A block knows its turn without asking: blocks that add to a tile of queries are those whose keys it
// sees, and it meets exactly these tiles.
TEST(BackwardSm80Joint, ATileOfQueriesAndATileOfKeysAgreeThatTheyMeet) {
  std::mt19937_64 random(3);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const int len_q = draw(0, 500), len_kv = draw(0, 500), block_q = 64 << draw(0, 1);
    const int block_kv = draw(0, 1) == 0 ? 64 : 128;
    const attention::BandLimits queries =
        attention::band_limits(draw(0, 1) == 0 ? -1 : draw(0, 300),
                               draw(0, 1) == 0 ? -1 : draw(0, 300), draw(-400, 400), len_kv);
    const attention::BandLimits keys = attention::seen_from_keys(queries, len_q);
    for (int q = 0; q * block_q < len_q; ++q) {
      const attention::TileRange seen =
          attention::tile_range(queries, len_q, q * block_q, (q + 1) * block_q, block_kv);
      for (int k = 0; k * block_kv < len_kv; ++k) {
        const attention::TileRange by =
            attention::tile_range(keys, len_kv, k * block_kv, (k + 1) * block_kv, block_q);
        ASSERT_EQ(k >= seen.begin && k < seen.end, q >= by.begin && q < by.end)
            << trial << ": " << q << ", " << k;
      }
    }
  }
}

// ---- the band

// Every pair of small problems, by the definition.
TEST(BackwardSm80Band, KeysSeeTheQueriesThatSeeThem) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  constexpr int kTile = 16;
  int visible = 0, removed = 0;
  for (int round = 0; round < 400; ++round) {
    Sequence s;
    s.len_q = s.rows_q = below(70);
    s.len_kv = below(70);
    s.offset = below(120) - 60;
    const Band band{below(2) == 0 ? -1 : below(40), below(2) == 0 ? -1 : below(40)};
    const attention::BandLimits limits =
        attention::seen_from_keys(attention::band_limits(s, band), static_cast<int>(s.len_q));
    for (int first = 0; first < s.len_kv; first += kTile) {
      const attention::TileRange range =
          attention::tile_range(limits, static_cast<int>(s.len_kv), first, first + kTile, kTile);
      for (int key = first; key < std::min<int64_t>(first + kTile, s.len_kv); ++key) {
        for (int query = 0; query < s.len_q; ++query) {
          const KeyRange keys = visible_keys(s, band, query);
          const bool seen = key >= keys.begin && key < keys.end;
          const attention::ColumnRange columns = attention::visible_columns(limits, key, 0);
          ASSERT_EQ(query >= columns.begin && query < columns.end, seen) << query << ", " << key;
          const int tile = query / kTile;
          const bool visited = tile >= range.begin && tile < range.end;
          ASSERT_TRUE(visited || !seen) << query << ", " << key;
          const bool mask_free = visited && !range.needs_mask(tile);
          ASSERT_TRUE(seen || !mask_free) << query << ", " << key;
          ++(seen ? visible : removed);
        }
      }
    }
  }
  EXPECT_GT(visible, 10000);
  EXPECT_GT(removed, 10000);
}

// ---- refusals

TEST(BackwardSm80Refuses, TilesPast32Bits) {
  tests::AskedGradients asked = tests::dense_gradients(DType::f16, 64, 64);
  const int64_t many = int64_t{1} << 30;
  for (TensorDesc* tensor :
       {&asked.problem.q, &asked.problem.o, &asked.gradients.d_o, &asked.gradients.dq}) {
    *tensor = TensorDesc::contiguous(DType::f16, {2, many, 100, 64});
  }
  asked.problem.lse = TensorDesc::contiguous(DType::f32, {2, many, 100});
  EXPECT_THAT(tests::refusal(supports(), asked), HasSubstr("q: makes 27917287424 tiles"));
}

TEST(BackwardSm80, ComputesInFp32WhereTypesDiffer) {
  tests::AskedGradients asked = tests::dense_gradients(DType::bf16, 64, 64);
  EXPECT_FALSE(computes_in_fp32(tests::resolved(asked)));
  asked.problem.o.dtype = asked.gradients.d_o.dtype = DType::f32;
  EXPECT_TRUE(computes_in_fp32(tests::resolved(asked)));
  EXPECT_TRUE(computes_in_fp32(tests::resolved(tests::dense_gradients(DType::f32, 64, 64))));
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm80::general
