// What of forward_sm90_throughput needs no GPU: its table of tiles, the order of tiles, the counter
// that hands them out, the ranges of blocks, and its refusals.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/schedule.hpp"
#include "cuda/forward_sm90/throughput/supports.hpp"
#include "cuda/forward_sm90/throughput/tile_counter.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90::throughput {
namespace {

using testing::HasSubstr;

// ---- the resource page

TEST(ForwardSm90Config, EveryHeadDimensionGetsTheFirstTileThatHoldsIt) {
  for (const bool features : {false, true}) {
    for (int qk = 8; qk <= 256; qk += 8) {
      for (int v = 8; v <= 256; v += 8) {
        const int chosen = choose_config(qk, v, features);
        ASSERT_GE(chosen, 0) << qk << "/" << v;
        for (int i = 0; i <= chosen; ++i) {
          const Config& c = kConfigs[static_cast<size_t>(i)];
          const bool fits =
              c.head_dim_qk >= qk && c.head_dim_v >= v && (features ? c.features : c.plain);
          ASSERT_EQ(fits, i == chosen) << qk << "/" << v << ", row " << i;
        }
      }
    }
    EXPECT_EQ(choose_config(257, 64, features), -1);
    EXPECT_EQ(choose_config(64, 257, features), -1);
  }
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

DeviceInfo gpu(int32_t compute_capability) {
  DeviceInfo info;
  info.device = {DeviceKind::cuda, 0};
  info.compute_capability = compute_capability;
  return info;
}

Problem dense(DType dtype, int64_t head_dim_qk, int64_t head_dim_v) {
  Problem p;
  p.q = p.k = TensorDesc::contiguous(dtype, {2, 4, 100, head_dim_qk});
  p.v = p.o = TensorDesc::contiguous(dtype, {2, 4, 100, head_dim_v});
  p.lse = TensorDesc::contiguous(DType::f32, {2, 4, 100});
  return p;
}

std::string refusal(const Problem& problem, int32_t compute_capability = 90,
                    const char* targets = "80;89;90a",
                    const Supports& supports = throughput::supports()) {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return refusal_on_gpu(supports, targets, *resolved, {.device = gpu(compute_capability)});
}

TEST(ForwardSm90Refusal, NamesWhatItDoesNotCompute) {
  EXPECT_THAT(refusal(dense(DType::f32, 64, 64)), HasSubstr("q: dtype is f32"));
  EXPECT_THAT(refusal(dense(DType::f16, 264, 64)), HasSubstr("q: head dimension is 264"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 61)), HasSubstr("v: head dimension is 61"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 64), 80), HasSubstr("compute capability is 8.0"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 64), 100), HasSubstr("compute capability is 10.0"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 64), 90, "80;89"), HasSubstr("code for 80;89"));
  Problem p = dense(DType::f16, 64, 64);
  p.o.dtype = DType::f32;
  EXPECT_THAT(refusal(p), HasSubstr("o: dtype is f32, wanted q's f16"));
  p = dense(DType::f16, 64, 64);
  p.k = TensorDesc::strided(DType::f16, {2, 4, 100, 64}, {4 * 100 * 68, 100 * 68, 68, 1});
  EXPECT_THAT(refusal(p), HasSubstr("k: row stride is 68 elements"));
  p = dense(DType::f16, 64, 64);
  p.v = TensorDesc::strided(DType::f16, {2, 4, 100, 64}, {100 * 64, 0, 64, 1});
  EXPECT_THAT(refusal(p), HasSubstr("v: head stride is 0"));
}

TEST(ForwardSm90Refusal, OnlyHeadDimensionsUpTo64WithoutSoftcapHaveAChoiceOfTiles) {
  const auto tiles = [](const Problem& p) {
    std::string names;
    for (const int row : tile_candidates(*resolve(p))) {
      names += fmt::format("{} ", tile_name(kConfigs[static_cast<size_t>(row)]));
    }
    return names;
  };
  const std::string all =
      "forward_sm90_throughput:192x128 forward_sm90_throughput:64x128 "
      "forward_sm90_throughput:64x64 ";
  EXPECT_EQ(tiles(dense(DType::f16, 64, 64)), all);
  EXPECT_EQ(tiles(dense(DType::bf16, 40, 8)), all);
  EXPECT_EQ(tiles(dense(DType::f16, 72, 64)), "forward_sm90_throughput:128x128 ");
  Problem p = dense(DType::f16, 64, 64);
  p.softcap = 30;
  EXPECT_EQ(tiles(p), "forward_sm90_throughput:128x128 ");
}

// Keys and values in pages of so many rows.
Problem paged(int64_t page_size, int64_t head_dim = 128) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, head_dim});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {30, 2, page_size, head_dim});
  p.page_table = TensorDesc::contiguous(DType::i32, {2, 10});
  return p;
}

TEST(ForwardSm90Refusal, OfPagesNamesWhatItDoesNotCompute) {
  const auto of_pages = [](const Problem& p) {
    return refusal(p, 90, "80;89;90a", throughput::paged_supports());
  };
  for (const int64_t page_size : {8, 16, 24, 64, 128, 1000}) {
    EXPECT_EQ(of_pages(paged(page_size)), "") << page_size;
  }
  EXPECT_THAT(of_pages(dense(DType::f16, 64, 64)), HasSubstr("page_table: is not given"));
  EXPECT_THAT(of_pages(paged(20)), HasSubstr("k: page size is 20, wanted a multiple of 8"));
  EXPECT_THAT(of_pages(paged(64, 264)), HasSubstr("q: head dimension is 264"));
  Problem p = paged(64);
  p.cache_leftpad = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_THAT(of_pages(p), HasSubstr("cache_leftpad: is given"));
  p = paged(64);
  p.k.dtype = p.v.dtype = DType::f8e4m3;
  EXPECT_THAT(of_pages(p), HasSubstr("k: dtype is f8e4m3, wanted q's bf16"));
  p = paged(64);
  p.k = TensorDesc::strided(DType::bf16, {30, 2, 64, 128}, {2 * 64 * 132, 64 * 132, 132, 1});
  EXPECT_THAT(of_pages(p), HasSubstr("k: row stride is 132 elements"));
  p = paged(64);
  p.page_table = TensorDesc::strided(DType::i32, {2, 10}, {int64_t{1} << 31, 1});
  EXPECT_THAT(of_pages(p), HasSubstr("page_table: has"));
}

TEST(ForwardSm90Refusal, ComputesTheRest) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Problem p = dense(dtype, 192, 128);
    p.sinks = TensorDesc::contiguous(DType::f32, {4});
    p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
    p.softcap = 30;
    p.softmax_scale = -1.0F;
    p.causal = true;
    p.window_left = 7;
    EXPECT_EQ(refusal(p), "");
  }
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm90::throughput
