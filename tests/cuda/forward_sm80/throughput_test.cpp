// What of forward_sm80_throughput needs no GPU: its table of tiles, the key ranges, and
// refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/divisor.hpp"
#include "cuda/attention/kv_range.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/key_order.hpp"
#include "cuda/forward_sm80/throughput/key_turns.hpp"
#include "cuda/forward_sm80/throughput/splits.hpp"
#include "cuda/forward_sm80/throughput/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

using testing::HasSubstr;

// ---- the resource page

TEST(ForwardSm80ThroughputConfig, EveryHeadDimensionGetsTheCheapestTileThatHoldsIt) {
  for (int qk = 1; qk <= 256; ++qk) {
    for (int v = 1; v <= 256; ++v) {
      const int chosen = choose_config(qk, v);
      ASSERT_GE(chosen, 0) << qk << "/" << v;
      for (int i = 0; i < static_cast<int>(kConfigs.size()); ++i) {
        const Config& config = kConfigs[static_cast<size_t>(i)];
        const bool holds = config.head_dim_qk >= qk && config.head_dim_v >= v;
        ASSERT_EQ(holds && i < chosen, false) << qk << "/" << v << ": " << i << " holds it too";
        ASSERT_TRUE(i != chosen || holds) << qk << "/" << v;
      }
    }
  }
  EXPECT_EQ(choose_config(257, 64), -1);
  EXPECT_EQ(choose_config(64, 257), -1);
}

TEST(ForwardSm80ThroughputConfig, TilesFitTheSmallestSharedMemoryClass) {
  constexpr int kReservedPerBlock = 1024, kStatic = 1024;
  for (const Config& c : kConfigs) {
    EXPECT_LE(c.smem_bytes() + kStatic, 99 * 1024) << c.head_dim_qk;
    // sm_80 has 164 KB per SM: what 99 KB tiles leave there is one block, or two of small ones.
    EXPECT_LE(c.smem_bytes() + kStatic + kReservedPerBlock, 164 * 1024) << c.head_dim_qk;
    EXPECT_LE(c.threads() * c.blocks_per_sm * 255, 65536) << c.head_dim_qk;
  }
  const Config& d64 = kConfigs[0];
  EXPECT_LE(2 * (d64.smem_bytes() + kStatic + kReservedPerBlock), 100 * 1024)
      << "two blocks of head dimension 64 share one SM of sm_89";
}

TEST(ForwardSm80ThroughputConfig, Fp32HasATileForEveryHeadDimensionOfALaunch) {
  for (int qk = 1; qk <= 256; ++qk) {
    for (int v = 1; v <= launch_columns(4); ++v) {
      const int chosen = choose_config(qk, v, 4);
      ASSERT_GE(chosen, kHalfConfigs) << qk << "/" << v;
      const Config& config = kConfigs[static_cast<size_t>(chosen)];
      ASSERT_TRUE(config.head_dim_qk >= qk && config.head_dim_v >= v) << qk << "/" << v;
      ASSERT_EQ(config.element_bytes, 4);
    }
  }
  EXPECT_EQ(choose_config(257, 64, 4), -1);
  for (int i = 0; i < kHalfConfigs; ++i) {
    EXPECT_EQ(kConfigs[static_cast<size_t>(i)].element_bytes, 2) << i;
  }
}

TEST(ForwardSm80ThroughputConfig, TheFewTilesOfFp8AndOfLogitsHaveEveryHeadDimension) {
  for (int qk = 1; qk <= 256; ++qk) {
    for (int v = 1; v <= 256; ++v) {
      const Config& config = kConfigs[static_cast<size_t>(config_of_few(choose_config(qk, v)))];
      ASSERT_TRUE(config.head_dim_qk >= qk && config.head_dim_v >= v) << qk << "/" << v;
      ASSERT_EQ(config.element_bytes, 2);
    }
  }
}

TEST(ForwardSm80ThroughputConfig, WhatTheTableSays) {
  EXPECT_EQ(kConfigs[0].block_q(), 128);
  EXPECT_EQ(kConfigs[0].smem_bytes(), 48 * 1024);
  EXPECT_EQ(kConfigs[2].smem_bytes(), 96 * 1024);
  EXPECT_EQ(kConfigs[1].stored_qk(), 128) << "head dimension 96 is stored in panels of 64";
  EXPECT_EQ(kConfigs[2].slice_keys(Features::all), 16);
  EXPECT_EQ(kConfigs[2].slice_keys(Features::none), 32);
}

TEST(ForwardSm80ThroughputConfig, PairsOfWarpsServeLongRowsWhereTheSharedMemoryIs) {
  constexpr int64_t kSm80 = 163 * 1024, kSm89 = 99 * 1024, kSm90 = 227 * 1024;
  const int long_rows = choose_config(256, 256);
  EXPECT_EQ(long_rows, kPairedConfig.fallback);
  EXPECT_TRUE(pairs_serve(long_rows, kSm80));
  EXPECT_TRUE(pairs_serve(long_rows, kSm90));
  EXPECT_FALSE(pairs_serve(long_rows, kSm89));
  EXPECT_FALSE(pairs_serve(choose_config(128, 128), kSm80));
  EXPECT_LE(kPairedConfig.smem_bytes() + 3 * 1024, kSm80);
  EXPECT_LE(kPairedConfig.threads() * 255, 65536);
}

// ---- splits

TEST(ForwardSm80Splits, CoverTheKeysInWholeTiles) {
  for (const int64_t keys :
       {0, 1, 63, 64, 65, 128, 512, 513, 1000, 16384, 16385, 65536, 1000000, 1 << 30}) {
    const int64_t each = split_keys(keys), count = split_count(keys);
    for (const Config& config : kConfigs) {
      EXPECT_EQ(each % config.block_kv, 0) << keys << " in splits of " << each;
    }
    ASSERT_GE(count, 1) << keys;
    EXPECT_LE(count, 64) << keys;
    EXPECT_GE(count * each, keys) << "keys are left over";
    EXPECT_TRUE(count == 1 || (count - 1) * each < keys)
        << "the last split of " << keys << " is empty";
  }
}

TEST(ForwardSm80Splits, ManyEnoughForAGpuAndLongEnoughForTheirRows) {
  EXPECT_EQ(split_count(64), 1);
  EXPECT_EQ(split_count(512), 8);
  EXPECT_EQ(split_keys(8192), 256);
  EXPECT_EQ(split_count(8192), 32);
  EXPECT_EQ(split_keys(65536), 1024);
}

TEST(ForwardSm80Splits, ALaunchHasAsManyAsAnyEntryWants) {
  int64_t most = 2;
  for (int64_t keys = 0; keys < 70000; ++keys) {
    most = std::max(most, split_count(keys));
    ASSERT_EQ(most_splits(keys), most) << keys;
  }
  EXPECT_EQ(most_splits(int64_t{1} << 30), 64);
}

TEST(ForwardSm80Splits, WorkspaceHoldsEveryPartialRow) {
  EXPECT_EQ(split_workspace_bytes(1, 2, 64), 2 * (2 * 4 + 64 * 4));
  EXPECT_EQ(split_workspace_bytes(int64_t{1} << 20, 64, 128), (int64_t{1} << 26) * 130 * 4);
}

// ---- joining splits

struct Part {
  float reference = -std::numeric_limits<float>::infinity(), sum = 0, output = 0;
};

// One row with one output, as a split leaves it; a score times `unit` is in units of log2.
Part part_of(const std::vector<float>& scores, const std::vector<float>& values, size_t begin,
             size_t end, float unit) {
  Part part;
  for (size_t i = begin; i < end; ++i) part.reference = std::max(part.reference, scores[i]);
  for (size_t i = begin; i < end; ++i) {
    const float p = std::exp2((scores[i] - part.reference) * unit);
    part.sum += p;
    part.output += p * values[i];
  }
  return part;
}

Part joined(const std::vector<Part>& parts, float unit) {
  const auto exp2 = [](float x) { return std::exp2(x); };
  Part all;
  for (const Part& part : parts) all.reference = std::max(all.reference, part.reference);
  for (const Part& part : parts) {
    const float weight = attention::split_weight(part.reference, all.reference, unit, exp2);
    all.sum += weight * part.sum;
    all.output = attention::with_part(all.output, weight, part.output);
  }
  return all;
}

TEST(ForwardSm80Combine, SplitsGiveWhatTheWholeRowGives) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (int n = 0; n < 200; ++n) {
    std::vector<float> scores(100), values(100);
    // Sizes over the range of fp32: the kernel scales a difference.
    const float unit = n % 2 == 0 ? 1 : 0.18F;
    const float size = n % 4 < 2 ? 20 : n % 8 < 4 ? 1e30F : 3e37F;
    for (float& x : scores) x = size * normal(random);
    for (float& x : values) x = normal(random);
    const Part whole = part_of(scores, values, 0, 100, unit);
    std::vector<Part> parts = {Part{}};  // a split that no key of the row's is in
    for (size_t begin = 0; begin < 100; begin += 30) {
      parts.push_back(part_of(scores, values, begin, std::min<size_t>(begin + 30, 100), unit));
    }
    const Part all = joined(parts, unit);
    EXPECT_EQ(all.reference, whole.reference);
    EXPECT_NEAR(all.sum, whole.sum, 1e-5 * whole.sum);
    EXPECT_NEAR(all.output / all.sum, whole.output / whole.sum, 1e-5);
  }
}

TEST(ForwardSm80Combine, ARowWithoutAKeyIsEmptyAndNotNaN) {
  const Part all = joined({Part{}, Part{}}, 1);
  EXPECT_EQ(all.sum, 0);
  EXPECT_EQ(all.output, 0);
}

TEST(ForwardSm80Combine, WhatIsNotFiniteCountsHoweverSmallItsWeight) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(joined({{0, 1, 1}, {-1000, 1, kInfinity}}, 1).output, kInfinity);
  EXPECT_EQ(joined({{0, 1, 1}, {-1000, 1, -kInfinity}}, 1).output, -kInfinity);
  EXPECT_TRUE(std::isnan(joined({{0, 1, 1}, {-1000, 1, std::nanf("")}}, 1).output));
}

// ---- the order of tiles

TEST(ForwardSm80Order, TakesEveryTileOnceAndTheFirstOneFirst) {
  for (int begin = 0; begin < 4; ++begin) {
    for (int end = begin + 1; end < 9; ++end) {
      for (int first = begin; first < end; ++first) {
        const KeyTurns turns{.begin = begin, .end = end, .first = first};
        std::vector<int> taken;
        for (int turn = begin; turn < end; ++turn) taken.push_back(turns.tile(turn));
        EXPECT_EQ(taken.front(), first);
        EXPECT_EQ(taken.back(), first == begin ? end - 1 : first - 1);
        std::sort(taken.begin(), taken.end());
        for (int i = begin; i < end; ++i) ASSERT_EQ(taken[static_cast<size_t>(i - begin)], i);
      }
    }
  }
}

TEST(ForwardSm80Order, BeginsNextToTheDiagonalWhereverItIs) {
  EXPECT_EQ(nearest_tile(130, 0, 10, 64), 2);
  EXPECT_EQ(nearest_tile(63, 0, 10, 64), 0);
  EXPECT_EQ(nearest_tile(640, 0, 10, 64), 9);
  EXPECT_EQ(nearest_tile(130, 3, 10, 64), 3);
  EXPECT_EQ(nearest_tile(-1, 0, 10, 64), 0);
  EXPECT_EQ(nearest_tile(-(int64_t{1} << 33), 2, 10, 64), 2);
  EXPECT_EQ(nearest_tile(int64_t{1} << 33, 2, 10, 64), 9);
}

// ---- orders and divisions

TEST(ForwardSm80Divisor, DividesExactly) {
  constexpr uint32_t kLast = (uint32_t{1} << 31) - 1;
  std::mt19937_64 random(6);
  for (uint32_t d = 1; d <= 3000; ++d) {
    for (const uint32_t q : {0U, 1U, 2U, 1000U, kLast / d - 1, kLast / d}) {
      for (const uint32_t r : {0U, 1U, d / 2, d - 1}) {
        const uint64_t n = uint64_t{q} * d + r;
        if (r < d && n <= kLast) {
          ASSERT_EQ(attention::divisor(d).divide(static_cast<uint32_t>(n)), q) << n << " / " << d;
        }
      }
    }
  }
  for (int i = 0; i < 1000000; ++i) {
    const auto bits = static_cast<uint32_t>(random() % 31 + 1);
    const auto d = static_cast<uint32_t>(std::max<uint64_t>(random() % (uint64_t{1} << bits), 1));
    const auto any = static_cast<uint32_t>(random() % (uint64_t{kLast} + 1));
    for (const uint32_t n : {any, any / d * d, any / d * d + d - 1, kLast}) {
      if (n > kLast) continue;
      ASSERT_EQ(attention::divisor(d).divide(n), n / d) << n << " / " << d;
    }
  }
}

// A lane's columns of products 2 m and 2 m + 1 are four neighbouring keys, and every key has a row.
TEST(ForwardSm80KeyOrder, AgreesWithTheColumnsOfProducts) {
  for (const KeyOrder order : {KeyOrder::plain, KeyOrder::quads}) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int n = 0; n < 8; ++n) {
        for (int e = 0; e < 2; ++e) {
          const int row = 8 * n + 2 * (lane % 4) + e;  // of K's tile: the column of S
          EXPECT_EQ(key_of_row(order, row),
                    first_key_of_lane(order, lane) + key_distance(order, n, e))
              << "lane " << lane << " product " << n << " column " << e;
        }
      }
    }
    std::vector<int> keys;
    for (int row = 0; row < 64; ++row) keys.push_back(key_of_row(order, row));
    std::sort(keys.begin(), keys.end());
    for (int key = 0; key < 64; ++key) EXPECT_EQ(keys[static_cast<size_t>(key)], key);
  }
  EXPECT_EQ(key_distance(KeyOrder::quads, 1, 1), 3) << "four neighbours";
}

// ---- packed batches

// Every tile of every entry has exactly one slot, whatever the lengths.
TEST(PackedTiles, EveryTileHasOneSlot) {
  std::mt19937_64 random(2);
  for (int n = 0; n < 500; ++n) {
    const auto batch = static_cast<int>(1 + random() % 9);
    const int block_q = 8;
    std::vector<int64_t> begin = {0};
    for (int64_t b = 0; b < batch; ++b) {
      begin.push_back(begin.back() + static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 40));
    }
    std::map<std::pair<int64_t, int64_t>, int> seen;
    const int64_t slots = attention::packed_slots(begin.back(), batch, block_q);
    for (int64_t slot = 0; slot < slots; ++slot) {
      const auto found = attention::find_packed_tile(
          slot, batch, block_q, [&](int b) { return begin[static_cast<size_t>(b)]; });
      ASSERT_TRUE(found.entry >= 0 && found.entry < batch);
      ASSERT_TRUE(found.tile >= 0 && found.tile < found.tiles);
      ++seen[{found.entry, found.tile}];
    }
    for (int64_t b = 0; b < batch; ++b) {
      const auto at = static_cast<size_t>(b);
      const int64_t tiles = (begin[at + 1] - begin[at] + block_q - 1) / block_q;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        ASSERT_EQ((seen[{b, tile}]), 1) << "tile " << tile << " of entry " << b;
      }
    }
    for (const auto& [tile, times] : seen) ASSERT_EQ(times, 1);
  }
}

TEST(PackedTiles, EveryRowHasItsEntry) {
  const std::vector<int64_t> begin = {0, 0, 5, 5, 6, 9, 9};  // entries 0, 2 and 5 have no row
  const std::vector<int> wanted = {1, 1, 1, 1, 1, 3, 4, 4, 4};
  for (size_t row = 0; row < wanted.size(); ++row) {
    const int entry =
        attention::last_entry(static_cast<int64_t>(row), static_cast<int>(begin.size()) - 1,
                              [&](int b) { return begin[static_cast<size_t>(b)]; });
    EXPECT_EQ(entry, wanted[row]) << "row " << row;
  }
  std::mt19937_64 random(4);
  for (int n = 0; n < 2000; ++n) {  // whatever is in memory
    const int entry = attention::last_entry(static_cast<int64_t>(random() % 100), 7, [&](int) {
      return static_cast<int64_t>(random() % 100);
    });
    ASSERT_TRUE(entry >= 0 && entry < 7);
  }
}

// Device memory is not to be trusted: any contents give an entry of the batch.
TEST(PackedTiles, GarbageStaysInsideOfTheBatch) {
  std::mt19937_64 random(3);
  for (int n = 0; n < 2000; ++n) {
    std::vector<int64_t> begin(8);
    for (int64_t& row : begin) row = static_cast<int64_t>(random() % 100);
    const auto found =
        attention::find_packed_tile(static_cast<int64_t>(random() % 30), 7, 8,
                                    [&](int64_t b) { return begin[static_cast<size_t>(b)]; });
    ASSERT_TRUE(found.entry >= 0 && found.entry < 7);
  }
}

// ---- refusals

using tests::dense_heads, tests::paged_heads;

std::string refusal(const Problem& problem, Kind kernel) {
  return tests::refusal(throughput::supports(kernel), problem, tests::on_gpu(80));
}

Features features(const Problem& problem) { return features_of(tests::resolved(problem), false); }

TEST(ForwardSm80Refusal, SplitsOfALaunchAreCounted) {
  Problem p = dense_heads(DType::f16, 64, 64);  // broadcast, so that so many keys need no memory
  constexpr int64_t kMost = (int64_t{1} << 29) - 1;
  p.k = p.v = TensorDesc::strided(DType::f16, {2, 4, kMost, 64}, {0, 0, 0, 1});
  p.q = p.o = TensorDesc::contiguous(DType::f16, {2, 4, kMost, 64});
  p.lse.reset();
  EXPECT_THAT(refusal(p, Kind::split_kv), HasSubstr("splits"));
  EXPECT_EQ(refusal(p, Kind::half), "");
}

TEST(ForwardSm80Refusal, CachesHaveAnyPagesOrNone) {
  for (const int64_t page_size : {1, 7, 16, 64, 1000}) {
    EXPECT_EQ(refusal(paged_heads(page_size), Kind::paged), "") << page_size;
  }
  Problem p = dense_heads(DType::f16, 64, 64);
  p.cache_leftpad = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_EQ(refusal(p, Kind::paged), "");
}

TEST(ForwardSm80Refusal, ChunksOfACacheAreCountedIn32Bits) {
  Problem p = paged_heads(16);
  p.v.stride[0] = int64_t{1} << 31;
  EXPECT_THAT(refusal(p, Kind::paged), HasSubstr("v: its last row begins"));
  p.v.stride[0] = int64_t{1} << 30;
  EXPECT_EQ(refusal(p, Kind::paged), "");
}

TEST(ForwardSm80Refusal, ASeedInMemoryIsReadWithAllFeatures) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Problem p = dense_heads(dtype, 61, 33);
    p.dropout_state = TensorDesc::strided(DType::i64, {2}, {7});
    EXPECT_FALSE(tests::resolved(p).dropout_state.present) << "without dropout nobody reads it";
    p.dropout_p = 0.5F;
    EXPECT_EQ(refusal(p, Kind::split_kv), "");
    for (const bool batch_invariant : {false, true}) {
      EXPECT_EQ(features_of(tests::resolved(p), batch_invariant), Features::all);
    }
  }
}

TEST(ForwardSm80Splits, AreForFewQueriesLongKeysAndAnIdleGpu) {
  const auto splits = [](int64_t batch, int64_t queries, int64_t keys, bool batch_invariant) {
    Problem p;
    p.q = p.o = TensorDesc::contiguous(DType::f16, {batch, 32, queries, 128});
    p.k = p.v = TensorDesc::contiguous(DType::f16, {batch, 8, keys, 128});
    PlanContext context = tests::on_gpu(90);
    context.batch_invariant = batch_invariant;
    return splits_keys(tests::resolved(p), context);
  };
  EXPECT_TRUE(splits(1, 1, 8192, false));
  EXPECT_TRUE(splits(2, 16, 65536, false));
  EXPECT_FALSE(splits(1, 17, 8192, false));
  EXPECT_FALSE(splits(1, 1, 2047, false));
  EXPECT_FALSE(splits(64, 1, 8192, false)) << "the batch fills the GPU";
  for (const int64_t batch : {1, 3, 64, 1000}) {
    EXPECT_FALSE(splits(batch, 1, 8192, true)) << "another entry may have more queries";
    EXPECT_FALSE(splits(batch, 17, 8192, true));
  }
}

TEST(ForwardSm80Refusal, ScoresAloneHaveKernelsOfTheirOwn) {
  Problem p = dense_heads(DType::bf16, 128, 128);
  p.softcap = 30;
  p.bias = TensorDesc::contiguous(DType::bf16, {1, 1, 100, 100});
  p.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
  EXPECT_EQ(features(p), Features::scores);
  p.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 100});
  EXPECT_EQ(features(p), Features::all);
  p = dense_heads(DType::bf16, 128, 128);
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {2, 4, 2, 128});
  p.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
  EXPECT_EQ(features(p), Features::all) << "rows of one key have to be exact";
  p = dense_heads(DType::bf16, 128, 128);
  p.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
  p.window_left = p.window_right = 1;
  EXPECT_EQ(features(p), Features::all) << "so have those of a narrow window";
  p = dense_heads(DType::bf16, 128, 128);
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 1, 128});
  p.lse = TensorDesc::contiguous(DType::f32, {2, 4, 1});
  p.alibi_slopes = TensorDesc::contiguous(DType::f32, {4});
  EXPECT_EQ(features(p), Features::scores);
  p.causal = true;
  p.alignment = Alignment::top_left;
  EXPECT_EQ(features(p), Features::all)
      << "and those of a causal mask so short that no query sees 64";
  p.alignment = Alignment::bottom_right;
  EXPECT_EQ(features(p), Features::scores) << "the last query sees all";
  p = dense_heads(DType::bf16, 256, 256);
  p.softcap = 30;
  EXPECT_EQ(features(p), Features::all) << "no kernel of its own at this head dimension";
  EXPECT_EQ(features(dense_heads(DType::f32, 64, 64)), Features::all);
}

TEST(ForwardSm80Refusal, PlainIsWhatNeedsNoLookAtEveryTile) {
  const auto plain = [](const Problem& p) { return features(p) == Features::none; };
  Problem p = dense_heads(DType::f16, 80, 64);
  p.causal = true;
  p.window_left = 9;
  p.sinks = TensorDesc::contiguous(DType::f32, {4});
  EXPECT_TRUE(plain(p));
  Problem with = p;
  with.softcap = 1;
  EXPECT_FALSE(plain(with));
  with = p;
  with.dropout_p = 0.1F;
  EXPECT_FALSE(plain(with));
  with = p;
  with.softmax_scale = 0.0F;
  EXPECT_FALSE(plain(with));
  with = p;
  with.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 100});
  EXPECT_FALSE(plain(with));
  with = p;
  with.o.dtype = DType::f32;
  EXPECT_FALSE(plain(with));
  EXPECT_FALSE(plain(dense_heads(DType::f16, 81, 64))) << "rows that are not whole 16-byte chunks";
  with = p;
  with.k = TensorDesc::strided(DType::f16, {2, 4, 100, 80}, {4 * 100 * 84, 100 * 84, 84, 1});
  EXPECT_FALSE(plain(with)) << "rows that do not begin at multiples of 16 bytes";
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm80::throughput
