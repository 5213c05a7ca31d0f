// What of backward_sm90 needs no GPU: its tiles, the order of additions to dQ, and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/throughput/bias/walk.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/schedule.hpp"
#include "cuda/backward_sm90/throughput/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::backward_sm90::throughput {
namespace {

using testing::HasSubstr;

// ---- the resource page

TEST(BackwardSm90Config, HeadDimensionsTakeTheNextTiles) {
  for (int head_dim = 1; head_dim <= 256; ++head_dim) {
    for (const bool softcap : {false, true}) {
      const int index = config_index(head_dim, softcap);
      ASSERT_EQ(index >= 0, head_dim <= 128) << head_dim;
      if (index < 0) continue;
      const Config& config = kConfigs[static_cast<size_t>(index)];
      EXPECT_EQ(config.head_dim, head_dim <= 64 ? 64 : 128);
      EXPECT_TRUE(config.caps || !softcap);
      EXPECT_TRUE(index < kPlainConfigs || softcap);
    }
  }
}

// A step's bias of 32 bits fits where a step has 64 queries.
TEST(BackwardSm90Config, ABiasTakesTilesWithRoomForIt) {
  for (const int64_t head_dim : {8, 64, 72, 128}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      ForwardProblem p;
      p.head_dim_qk = p.head_dim_v = head_dim;
      p.bias.present = true;
      p.bias.dtype = dtype;
      const Config& config = kConfigs[static_cast<size_t>(pair_config_of(p))];
      EXPECT_GE(config.head_dim, head_dim);
      EXPECT_TRUE(config.caps);
      EXPECT_GE(config.bias_bytes(),
                static_cast<int>(size_of(dtype)) * config.block_q * kBlockKeys);
      EXPECT_LE(config.pair_shared_bytes(), kSharedMemory);
    }
  }
}

TEST(BackwardSm90Config, WarpsHaveEachSumOfABlockOnce) {
  for (const Config& config : kConfigs) {
    std::vector<int> seen(static_cast<size_t>(config.block_sums()));
    for (int warp = 0; warp < kConsumerWarps; ++warp) {
      for (int product = 0; product < config.dq_products(); ++product) {
        for (int lane = 0; lane < kWarpThreads; ++lane) {
          for (int e = 0; e < kSumsFloats; ++e) {
            const SumPlace place = sum_place(config, warp, product, lane, e);
            ASSERT_TRUE(place.query >= 0 && place.query < config.block_q);
            ASSERT_TRUE(place.dim >= 0 && place.dim < config.head_dim);
            ++seen[static_cast<size_t>(place.query * config.head_dim + place.dim)];
          }
        }
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), config.block_sums()) << config.head_dim;
  }
}

// ---- the schedule

struct Banded {
  int queries;
  BandLimits limits;
};

Banded random_band(std::mt19937_64& random) {
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  const int keys = static_cast<int>(1 + below(700));
  const int64_t left = below(3) == 0 ? -1 : below(300), right = below(3) == 0 ? -1 : below(300);
  return {static_cast<int>(1 + below(700)),
          attention::band_limits(left, right, below(900) - 450, keys)};
}

TEST(BackwardSm90Schedule, BlocksOfQueriesHoldWhatATileSees) {
  std::mt19937_64 random(1);
  int64_t visible = 0, free = 0;
  for (int round = 0; round < 60; ++round) {
    const auto [queries, limits] = random_band(random);
    for (const Config& config : kConfigs) {
      const int tiles = (limits.len_kv + kBlockKeys - 1) / kBlockKeys;
      for (int tile = 0; tile < tiles; ++tile) {
        const TileRange range = query_blocks(limits, queries, tile, config.block_q);
        const int first = tile * kBlockKeys;
        for (int row = 0; row < kBlockKeys; ++row) {
          for (int query = 0; query < queries; ++query) {
            const int key = first + row, block = query / config.block_q;
            const bool sees =
                key < limits.len_kv && key - query >= limits.low && key - query <= limits.high;
            const bool visited = block >= range.begin && block < range.end;
            ASSERT_TRUE(visited || !sees) << query << ", " << key;
            const bool mask_free = visited && !range.needs_mask(block);
            ASSERT_TRUE(sees || !mask_free) << query << ", " << key;
            visible += sees ? 1 : 0;
            free += mask_free ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(visible, 1000000);
  EXPECT_GT(free, 100000);
}

// A tile's turn at a block is how many tiles before it visit the block, and the last does.
TEST(BackwardSm90Schedule, TilesAddInAscendingOrderWithoutGaps) {
  std::mt19937_64 random(2);
  int64_t additions = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto [queries, limits] = random_band(random);
    for (const Config& config : kConfigs) {
      const int tiles = (limits.len_kv + kBlockKeys - 1) / kBlockKeys;
      std::vector<int> added(static_cast<size_t>((queries + config.block_q - 1) / config.block_q));
      for (int tile = 0; tile < tiles; ++tile) {
        const TileRange range = query_blocks(limits, queries, tile, config.block_q);
        for (int block = range.begin; block < range.end; ++block) {
          ASSERT_EQ(tile - key_tiles(limits, queries, block, config.block_q).begin,
                    added[static_cast<size_t>(block)]++)
              << "tile " << tile << ", block " << block << ", round " << round;
          ++additions;
        }
      }
      for (int block = 0; block < static_cast<int>(added.size()); ++block) {
        ASSERT_EQ(key_tiles(limits, queries, block, config.block_q).size(),
                  added[static_cast<size_t>(block)])
            << "block " << block << ", round " << round;
      }
    }
  }
  EXPECT_GT(additions, 20000);
}

TEST(BackwardSm90Schedule, TilesOfAHeadComeInAscendingOrder) {
  for (const bool longest_first : {false, true}) {
    const attention::TileOrder order{
        .batch_heads = 7, .q_tiles = 5, .section_heads = 3, .longest_first = longest_first};
    std::vector<int> next(7);
    for (uint32_t i = 0; i < order.size(); ++i) {
      const KeyTile place = key_tile(order, i);
      EXPECT_EQ(place.tile, next[static_cast<size_t>(place.batch_head)]++) << i;
    }
    EXPECT_THAT(next, testing::Each(5));
  }
}

// ---- batch entries of their own

struct EntryParams : RowParams {
  Options options;
};

// Every tile of every entry of a packed batch has a slot, and no two have the same one; so have the
// blocks of queries, by which the sums of dQ lie.
TEST(BackwardSm90Entries, SlotsOfAPackedBatchHoldEachTileOnce) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> ends{0};
    const int batch = static_cast<int>(1 + random() % 6);
    for (int b = 0; b < batch; ++b) {
      ends.push_back(ends.back() + static_cast<int32_t>(random() % 4 == 0 ? 0 : random() % 400));
    }
    EntryParams p{};
    p.batch = batch, p.heads_q = 4, p.heads_kv = 2, p.group = 2;
    p.seqlen_q = p.seqlen_kv = 400;
    p.total_q = p.total_kv = ends.back() + static_cast<int>(random() % 50);
    p.cu_seqlens_q = p.cu_seqlens_kv = {ends.data(), 1};
    for (const int block : {64, 96, 128}) {
      p.q_blocks = static_cast<int>(attention::packed_slots(p.total_q, batch, block));
      std::vector<int> seen(static_cast<size_t>(p.heads_q * p.q_blocks));
      for (size_t number = 0; number < seen.size(); ++number) {
        const EntryBlock of = query_block(p, static_cast<uint32_t>(number), block);
        const EntryRows rows = entry_rows(p, of.entry, block);
        ASSERT_EQ(rows.batch, 0);
        if (of.block < 0 || of.block * block >= rows.len_q) continue;
        const int its_number = of.head * p.q_blocks + rows.first_block + of.block;
        ASSERT_EQ(its_number, static_cast<int>(number));
        ++seen[number];
      }
      for (int b = 0; b < batch; ++b) {
        const EntryRows rows = entry_rows(p, b, block);
        ASSERT_EQ(rows.len_q, ends[static_cast<size_t>(b) + 1] - ends[static_cast<size_t>(b)]);
        for (int i = 0; i * block < rows.len_q; ++i) {
          for (int head = 0; head < p.heads_q; ++head) {
            ASSERT_EQ(seen[static_cast<size_t>(head * p.q_blocks + rows.first_block + i)], 1);
          }
        }
      }
    }
  }
}

TEST(BackwardSm90Entries, LengthsAreClampedAndSetTheDiagonal) {
  const int32_t lengths_q[] = {10, 900}, lengths_kv[] = {70, -5};
  EntryParams p{};
  p.batch = 2, p.heads_q = p.heads_kv = p.group = 1, p.q_blocks = 2;
  p.seqlen_q = 100, p.seqlen_kv = 120;
  p.seqlens_q = {lengths_q, 1}, p.seqlens_kv = {lengths_kv, 1};
  p.diagonal = attention::Diagonal::bottom_right;
  p.options.band = {.left = -1, .right = 0};
  const EntryRows first = entry_rows(p, 0, 96);
  EXPECT_EQ(first.len_q, 10);
  EXPECT_EQ(first.limits.len_kv, 70);
  EXPECT_EQ(first.limits.high, 60);
  EXPECT_EQ(first.batch, 0);
  p.options.band = {};
  const EntryRows second = entry_rows(p, 1, 96);
  EXPECT_EQ(second.len_q, 100);
  EXPECT_EQ(second.limits.len_kv, 0);
  EXPECT_EQ(second.batch, 1);
  EXPECT_EQ(second.first_block, 0);
}

// ---- dBias

struct BiasParams : EntryParams {
  BiasTarget d_bias;
  int q_tiles, k_tiles;
  uint32_t items;
};

// Tiles of dBias sum every visible pair once, whichever dimensions are summed, and in ascending order.
TEST(BackwardSm90Bias, TilesOfDBiasHaveEachVisiblePairOnce) {
  std::mt19937_64 random(4);
  const auto below = [&](uint64_t end) { return static_cast<int>(random() % end); };
  int64_t pairs = 0;
  for (int round = 0; round < 300; ++round) {
    BiasParams p{};
    p.batch = 1 + below(3), p.heads_q = p.heads_kv = 1 + below(3), p.group = 1;
    p.seqlen_q = 1 + below(400), p.seqlen_kv = 1 + below(400);
    std::vector<int32_t> lengths_q, lengths_kv;
    for (int b = 0; b < p.batch; ++b) {
      lengths_q.push_back(below(500));
      lengths_kv.push_back(below(500));
    }
    p.seqlens_q = {lengths_q.data(), 1}, p.seqlens_kv = {lengths_kv.data(), 1};
    p.options.band = {.left = below(2) == 0 ? -1 : below(300), .right = below(2) == 0 ? -1 : 0};
    p.diagonal = attention::Diagonal::bottom_right;
    p.q_tiles = (p.seqlen_q + kBiasTile - 1) / kBiasTile;
    p.k_tiles = (p.seqlen_kv + kBiasTile - 1) / kBiasTile;
    const int counts[] = {p.batch, p.heads_q, p.q_tiles, p.k_tiles};
    const int extents[] = {p.batch, p.heads_q, p.seqlen_q, p.seqlen_kv};
    p.items = 1;
    for (int i = 0; i < 4; ++i) {
      p.d_bias.extents[i] = below(2) == 0 ? 1 : extents[i];
      if (!p.d_bias.sums(i)) p.items *= static_cast<uint32_t>(counts[i]);
    }
    std::vector<int> seen(static_cast<size_t>(p.batch * p.heads_q * p.q_tiles * p.k_tiles));
    for (uint32_t number = 0; number < p.items; ++number) {
      const BiasItem item = bias_item(p, number);
      int before = -1;
      for (BiasWalk walk(p, item); !walk.has_ended(); walk.advance()) {
        const int place =
            ((walk.batch * p.heads_q + walk.head) * p.q_tiles + walk.q_tile) * p.k_tiles +
            walk.k_tile;
        ASSERT_GT(place, before);
        before = place;
        ++seen[static_cast<size_t>(place)];
        const int of_item[] = {item.batch, item.head, item.q_tile, item.k_tile};
        const int of_walk[] = {walk.batch, walk.head, walk.q_tile, walk.k_tile};
        for (int i = 0; i < 4; ++i) {
          ASSERT_TRUE(p.d_bias.sums(i) || of_item[i] == of_walk[i]);
        }
      }
    }
    for (int b = 0; b < p.batch; ++b) {
      const EntryRows rows = entry_rows(p, b, 1);
      for (int query = 0; query < rows.len_q; ++query) {
        const attention::ColumnRange keys = attention::visible_columns(rows.limits, query, 0);
        for (int key = std::max(keys.begin, 0); key < keys.end; ++key) {
          for (int head = 0; head < p.heads_q; ++head, ++pairs) {
            const int place = ((b * p.heads_q + head) * p.q_tiles + query / kBiasTile) * p.k_tiles +
                              key / kBiasTile;
            ASSERT_EQ(seen[static_cast<size_t>(place)], 1);
          }
        }
      }
    }
    EXPECT_LE(*std::max_element(seen.begin(), seen.end()), 1);
  }
  EXPECT_GT(pairs, 1000000);
}

TEST(BackwardSm90Bias, TilesThatALaunchDoesNotTakeAreRefused) {
  BackwardProblem problem = tests::resolved(tests::dense_gradients(DType::f16, 64, 64, 300));
  problem.forward.bias.present = problem.d_bias.present = true;
  const int64_t extents[] = {1 << 13, 1 << 13, 300, 2000};
  std::copy_n(extents, 4, problem.d_bias_extents);
  EXPECT_EQ(bias_items(problem), int64_t{3} << 30);
  EXPECT_THAT(tests::refusal(option_supports(), problem),
              HasSubstr("d_bias: makes 3221225472 tiles, wanted at most"));
}

// ---- refusals

TEST(BackwardSm90Refuses, ProblemsWithoutRows) {
  EXPECT_THAT(tests::refusal(supports(), tests::dense_gradients(DType::f16, 128, 128, 0)),
              HasSubstr("wanted at least 1"));
}

}  // namespace
}  // namespace flashcore::cuda::backward_sm90::throughput
