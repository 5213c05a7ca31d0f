// What of forward_sm90_throughput needs no GPU: its table of tiles, the order of tiles, the counter
// that hands them out, the ranges of blocks, and its refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cuda/forward_sm90/throughput/boxes.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/supports.hpp"
#include "cuda/forward_sm90/throughput/tile_counter.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::forward_sm90::throughput {
namespace {

using testing::HasSubstr;

// ---- the resource page

TEST(ForwardSm90Config, EveryHeadDimensionGetsATileWithTheFewestColumns) {
  for (const bool features : {false, true}) {
    for (int qk = 8; qk <= 256; qk += 8) {
      for (int v = 8; v <= 256; v += 8) {
        const int chosen = choose_config(qk, v, features);
        ASSERT_GE(chosen, 0) << qk << "/" << v;
        const Config& own = kConfigs[static_cast<size_t>(chosen)];
        ASSERT_TRUE(own.head_dim_qk >= qk && own.head_dim_v >= v);
        ASSERT_TRUE(features ? own.features : own.plain);
        for (const Config& c : kConfigs) {
          if (c.head_dim_qk < qk || c.head_dim_v < v || !(features ? c.features : c.plain))
            continue;
          ASSERT_LE(own.head_dim_qk + own.head_dim_v, c.head_dim_qk + c.head_dim_v)
              << qk << "/" << v << ", row " << chosen;
        }
      }
    }
    EXPECT_EQ(choose_config(257, 64, features), -1);
    EXPECT_EQ(choose_config(64, 257, features), -1);
  }
}

TEST(ForwardSm90Config, HeadDimensionsBetweenPowersOfTwoHaveTheirOwnTiles) {
  const auto keys = [](int64_t head_dim, bool features) {
    const Config& c = kConfigs[static_cast<size_t>(choose_config(head_dim, head_dim, features))];
    return std::pair(c.head_dim_qk, c.block_kv);
  };
  EXPECT_EQ(keys(72, false), std::pair(80, 128));
  EXPECT_EQ(keys(88, false), std::pair(96, 128));
  EXPECT_EQ(keys(112, false), std::pair(112, 128));
  EXPECT_EQ(keys(112, true), std::pair(128, 128));
  for (const bool features : {false, true}) {
    EXPECT_EQ(keys(136, features), std::pair(160, 112));
    EXPECT_EQ(keys(192, features), std::pair(192, 112));
    EXPECT_EQ(keys(200, features), std::pair(256, 64));
    EXPECT_EQ(choose_config(192, 128, features), 6);
  }
}

// Names of instances, evidence and tables have the indices.
TEST(ForwardSm90Config, RowsKeepTheirIndices) {
  const std::vector<std::pair<int, int>> tiles = {{64, 192}, {64, 64},   {64, 64},   {64, 128},
                                                  {96, 128}, {128, 128}, {192, 128}, {256, 128}};
  for (size_t i = 0; i < tiles.size(); ++i) {
    EXPECT_EQ(kConfigs[i].head_dim_qk, tiles[i].first) << i;
    EXPECT_EQ(kConfigs[i].block_q(), tiles[i].second) << i;
  }
  std::set<int> rows(kByCost.begin(), kByCost.end());
  EXPECT_EQ(rows.size(), kConfigs.size());
  EXPECT_EQ(*rows.rbegin(), static_cast<int>(kConfigs.size()) - 1);
}

TEST(ForwardSm90Config, RegistersAndSharedMemoryAreThereForAllWarps) {
  for (const Config& c : kConfigs) {
    const int threads = c.threads(), blocks = c.blocks_per_sm;
    EXPECT_LE(c.tile_bytes() + kBarrierBytes, 227 * 1024) << c.head_dim_qk;
    EXPECT_LE(blocks * (c.tile_bytes() + kBarrierBytes + 1024), 228 * 1024);
    EXPECT_LE(128 * (c.producer_registers() + c.consumers * c.consumer_registers()),
              65536 / (blocks * threads) / 8 * 8 * threads)
        << "the pool is what the launch allocated";
    EXPECT_EQ(c.consumer_registers() % 8, 0);
    EXPECT_EQ(c.producer_registers() % 8, 0);
  }
}

TEST(ForwardSm90Config, PagesHaveTheirOwnTiles) {
  EXPECT_EQ(choose_paged_config(64, 64, false), 3);
  EXPECT_EQ(choose_paged_config(64, 64, true), 5) << "compiled without features";
  EXPECT_EQ(choose_paged_config(80, 128, true), 5);
  EXPECT_EQ(choose_paged_config(192, 128, false), 6);
  EXPECT_EQ(choose_paged_config(192, 128, true), 7);
  EXPECT_EQ(choose_paged_config(256, 256, true), 7);
  EXPECT_EQ(choose_paged_config(264, 64, false), -1);
}

TEST(ForwardSm90Config, OptionsHaveTheirOwnTiles) {
  EXPECT_EQ(choose_option_config(64, 64), 0);
  EXPECT_EQ(choose_option_config(64, 72), 1);
  EXPECT_EQ(choose_option_config(128, 128), 1);
  EXPECT_EQ(choose_option_config(136, 8), 2);
  EXPECT_EQ(choose_option_config(256, 256), 2);
  EXPECT_EQ(choose_option_config(257, 64), -1);
  for (const Config& c : kOptionConfigs) {
    EXPECT_LE(option_tile_bytes(c) + kBarrierBytes, 227 * 1024) << c.head_dim_qk;
    EXPECT_EQ(option_tile_bytes(c) - c.tile_bytes(), 2 * c.block_q() * c.block_kv);
  }
}

TEST(ForwardSm90Config, ABoxOfRowsNeverLeavesAPage) {
  for (const PagedConfig& paged : kPagedConfigs) {
    const Config& config = kConfigs[static_cast<size_t>(paged.row)];
    for (int page_size = 1; page_size <= 600; ++page_size) {
      const int rows = box_rows(page_size, config);
      EXPECT_EQ(rows == 0, page_size % 8 != 0) << page_size;
      if (rows == 0) continue;
      EXPECT_EQ(page_size % rows, 0) << page_size;
      EXPECT_EQ(config.block_kv % rows, 0) << page_size;
      EXPECT_LE(config.block_kv / rows, 32) << "one lane a box";
    }
    EXPECT_EQ(box_rows(config.block_kv, config), config.block_kv);
    EXPECT_EQ(box_rows(1024, config), config.block_kv);
    EXPECT_EQ(box_rows(48, config), 16);
  }
}

// ---- boxes of pages

RowStrides strides(int64_t page, int64_t head) { return {.batch = page, .head = head, .row = 64}; }

void expect_lead(int64_t pages, int64_t heads, const RowStrides& stride, int extent) {
  const std::optional<BoxLead> lead = box_lead(pages, heads, stride);
  ASSERT_TRUE(lead.has_value());
  EXPECT_EQ(lead->extent, extent);
  // The places are the tensor's.
  EXPECT_EQ(lead->steps.page * lead->stride, pages > 1 ? stride.batch : 0);
  EXPECT_EQ(lead->steps.head * lead->stride, heads > 1 ? stride.head : 0);
}

TEST(ForwardSm90Boxes, OneCoordinateCountsPagesAndHeads) {
  expect_lead(10, 4, strides(16 * 4 * 64, 64), 9 * 64 + 4);  // [page, row, head]
  expect_lead(10, 4, strides(4 * 1024, 1024), 40);           // [page, head, row]
  expect_lead(10, 4, strides(1024, 10 * 1024), 40);          // [head, page, row]
  expect_lead(10, 1, strides(1000, 17), 10);
  expect_lead(1, 4, strides(17, 1000), 4);
  expect_lead(1, 1, strides(17, 19), 1);
  EXPECT_FALSE(box_lead(10, 4, strides(1000, 64)).has_value()) << "no multiple";
  EXPECT_FALSE(box_lead(int64_t{1} << 26, 4, strides(4096, 64)).has_value()) << "2^32 places";
}

Boxes boxes(const Problem& p) { return boxes_of(tests::resolved(p), kConfigs[5]); }

TEST(ForwardSm90Boxes, HaveWholeRowsWhereOneMapHasThem) {
  EXPECT_EQ(boxes(tests::paged_heads(64)).rows, 64);
  EXPECT_TRUE(boxes(tests::paged_heads(64)).whole_rows);
  EXPECT_EQ(boxes(tests::paged_heads(256)).rows, 128);
  EXPECT_EQ(boxes(tests::paged_heads(48)).rows, 16);
  EXPECT_EQ(boxes(tests::paged_heads(64, 96)).rows, 8) << "one and a half panels";
  EXPECT_FALSE(boxes(tests::paged_heads(64, 96)).whole_rows);
  Problem apart = tests::paged_heads(64);
  apart.k = TensorDesc::strided(DType::bf16, {30, 2, 64, 128}, {20000, 8192, 128, 1});
  EXPECT_EQ(boxes(apart).rows, 8) << "pages are no multiple of heads apart";
  EXPECT_FALSE(boxes(apart).whole_rows);
}

// ---- the counter

// What lies in memory.
struct CounterMemory {
  uint64_t name, counts;
};

// Blocks that run in any order, on memory that holds anything: what the device functions do, one
// memory operation at a time.
class Launch {
 public:
  Launch(CounterMemory& memory, uint64_t name, uint32_t tiles, uint32_t blocks)
      : memory_(memory), counter_{name, blocks}, tiles_(tiles), blocks_(blocks, Block{}) {
    for (uint32_t b = 0; b < blocks; ++b) blocks_[b].tile = b;
  }

  bool done() const {
    return std::all_of(blocks_.begin(), blocks_.end(),
                       [](const Block& b) { return b.at == kDone; });
  }
  const std::vector<uint32_t>& taken() const { return taken_; }

  void step(size_t which) {
    Block& b = blocks_[which];
    switch (b.at) {
      case kRead:
        b.found = memory_.name;
        b.at = b.found == counter_.name              ? kAsk
               : b.found == counter_.being_claimed() ? kRead
                                                     : kSwap;
        break;
      case kSwap:
        b.at = memory_.name == b.found ? kClear : kRead;
        if (b.at == kClear) memory_.name = counter_.being_claimed();
        break;
      case kClear:
        memory_.counts = 0;
        b.at = kName;
        break;
      case kName:
        memory_.name = counter_.name;
        b.at = kAsk;
        break;
      case kAsk:
        if (b.tile < tiles_) {
          taken_.push_back(b.tile);
          b.tile = counter_.tile_after(memory_.counts);
          memory_.counts += TileCounter::kOneTile;
        } else {
          b.found = memory_.counts;
          memory_.counts += TileCounter::kOneLeft;
          b.at = kReset;
        }
        break;
      case kReset:
        if (counter_.is_last(b.found)) memory_.counts = 0;
        b.at = kDone;
        break;
      case kDone:
        break;
    }
  }

 private:
  enum Step { kRead, kSwap, kClear, kName, kAsk, kReset, kDone };
  struct Block {
    uint32_t tile = 0;
    uint64_t found = 0;
    Step at = kRead;
  };
  CounterMemory& memory_;
  TileCounter counter_;
  uint32_t tiles_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> taken_;
};

TEST(ForwardSm90Counter, HandsOutEveryTileOnceAndIsReadyForTheNextLaunch) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const uint64_t mine = random() & ~uint64_t{1};
    // Memory that nobody cleared; often all of the name but one bit.
    CounterMemory memory{round % 2 == 0 ? random() : mine ^ uint64_t{2} << random() % 63, random()};
    for (int launch = 0; launch < 4; ++launch) {
      const uint64_t name = launch < 2 ? mine : random() & ~uint64_t{1};  // another plan's
      const auto blocks = static_cast<uint32_t>(1 + random() % 6);
      // A packed batch may have fewer tiles than blocks.
      const auto tiles = static_cast<uint32_t>(random() % 30);
      Launch one(memory, name, tiles, blocks);
      while (!one.done()) one.step(random() % blocks);
      std::vector<uint32_t> taken = one.taken();
      std::sort(taken.begin(), taken.end());
      ASSERT_EQ(taken.size(), tiles);
      for (uint32_t i = 0; i < tiles; ++i) ASSERT_EQ(taken[i], i);
      ASSERT_EQ(memory.name, name);
      ASSERT_EQ(memory.counts, 0U);
    }
  }
}

// ---- refusals

TEST(ForwardSm90Refusal, OnlyHeadDimensionsUpTo64WithoutSoftcapHaveAChoiceOfTiles) {
  const auto tiles = [](const Problem& p) {
    std::string names;
    for (const int row : tile_candidates(tests::resolved(p))) {
      names += fmt::format("{} ", tile_name(kConfigs[static_cast<size_t>(row)]));
    }
    return names;
  };
  const std::string all =
      "forward_sm90_throughput:192x128 forward_sm90_throughput:64x128 "
      "forward_sm90_throughput:64x64 ";
  EXPECT_EQ(tiles(tests::dense_heads(DType::f16, 64, 64)), all);
  EXPECT_EQ(tiles(tests::dense_heads(DType::bf16, 40, 8)), all);
  EXPECT_EQ(tiles(tests::dense_heads(DType::f16, 72, 64)), "forward_sm90_throughput:128x128 ");
  Problem p = tests::dense_heads(DType::f16, 64, 64);
  p.softcap = 30;
  EXPECT_EQ(tiles(p), "forward_sm90_throughput:128x128 ");
  p.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
  EXPECT_EQ(tiles(p), "") << "options have tiles of their own";
}

TEST(ForwardSm90Refusal, TmaCopiesTheBias) {
  const auto of_bias = [](const TensorDesc& bias) {
    Problem p = tests::dense_heads(DType::bf16, 64, 64, 104);
    p.bias = bias;
    return tests::refusal(throughput::options_supports(), p);
  };
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_EQ(of_bias(TensorDesc::contiguous(dtype, {2, 4, 104, 104})), "");
    EXPECT_EQ(of_bias(TensorDesc::contiguous(dtype, {1, 4, 104, 104})), "");
    EXPECT_EQ(of_bias(TensorDesc::contiguous(dtype, {2, 1, 1, 104})), "");
    EXPECT_EQ(of_bias(TensorDesc::strided(dtype, {2, 4, 104, 104}, {8, 104 * 112, 112, 1})), "");
    EXPECT_THAT(of_bias(TensorDesc::contiguous(dtype, {2, 4, 104, 1})),
                HasSubstr("bias: key stride is 0, wanted 1"));
    EXPECT_THAT(of_bias(TensorDesc::strided(dtype, {2, 4, 104, 104}, {8, 8, 108, 1})),
                HasSubstr("bias: query stride is 108, wanted a multiple of 8 from 0"));
    EXPECT_THAT(of_bias(TensorDesc::strided(dtype, {2, 4, 104, 104}, {8, -8, 112, 1})),
                HasSubstr("bias: head stride is -8, wanted a multiple of 8 from 0"));
    EXPECT_THAT(of_bias(TensorDesc::strided(dtype, {2, 4, 104, 104}, {4, 8, 112, 1})),
                HasSubstr("bias: batch stride is 4, wanted a multiple of 8 from 0"));
  }
  EXPECT_THAT(of_bias(TensorDesc::contiguous(DType::f32, {2, 4, 104, 104})),
              HasSubstr("bias: is f32, wanted f16 or bf16"));
}

TEST(ForwardSm90Refusal, PagesHoldWholeBoxesAndNumbersHave32Bits) {
  const auto of_pages = [](const Problem& p) {
    return tests::refusal(throughput::paged_supports(), p);
  };
  for (const int64_t page_size : {8, 16, 24, 64, 128, 1000}) {
    EXPECT_EQ(of_pages(tests::paged_heads(page_size)), "") << page_size;
  }
  EXPECT_THAT(of_pages(tests::paged_heads(20)),
              HasSubstr("k: page size is 20, wanted a multiple of 8"));
  Problem p = tests::paged_heads(64);
  p.page_table = TensorDesc::strided(DType::i32, {2, 10}, {int64_t{1} << 31, 1});
  EXPECT_THAT(of_pages(p), HasSubstr("page_table: has"));
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm90::throughput
