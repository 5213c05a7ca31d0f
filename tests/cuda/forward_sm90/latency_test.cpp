// What of forward_sm90_latency needs no GPU: its resources, how keys are split, and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/forward_sm80/latency/supports.hpp"
#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90::latency {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace)
using namespace attention::latency;
using attention::BandLimits, attention::tile_range, attention::TileRange;
using testing::HasSubstr;

// ---- the resource page

TEST(ForwardSm90LatencyConfig, EveryHeadDimensionGetsTheCheapestTileThatHoldsIt) {
  const auto config = [](int64_t qk, int64_t v, int64_t keys, bool one_wave) {
    const int index = choose_config(qk, v, keys, one_wave);
    return index < 0 ? Config{} : kConfigs[static_cast<std::size_t>(index)];
  };
  const auto is = [](const Config& c, int head_dim, int blocks, int ranks) {
    return c.head_dim == head_dim && c.blocks == blocks && c.ranks == ranks;
  };
  EXPECT_TRUE(is(config(8, 64, 512, true), 64, 1, 2));
  EXPECT_TRUE(is(config(64, 64, 129, true), 64, 1, 2));
  EXPECT_TRUE(is(config(64, 64, 512, false), 64, 2, 2)) << "two blocks share one SM";
  EXPECT_TRUE(is(config(64, 64, 256, true), 64, 1, 2));
  EXPECT_TRUE(is(config(64, 64, 256, false), 64, 1, 1)) << "a block holds all keys";
  EXPECT_TRUE(is(config(64, 64, 257, false), 64, 2, 2));
  EXPECT_TRUE(is(config(128, 64, 256, false), 128, 1, 1));
  EXPECT_TRUE(is(config(128, 64, 256, true), 128, 1, 2));
  for (const bool one_wave : {false, true}) {
    EXPECT_TRUE(is(config(64, 72, 512, one_wave), 128, 1, 2));
    EXPECT_TRUE(is(config(72, 64, 512, one_wave), 128, 1, 2));
    EXPECT_TRUE(is(config(128, 128, 512, one_wave), 128, 1, 2));
    EXPECT_EQ(choose_config(136, 64, 512, one_wave), -1);
    EXPECT_EQ(choose_config(64, 136, 128, one_wave), -1);
  }
}

TEST(ForwardSm90LatencyConfig, MissionIsLoadedAtOnce) {
  static_assert(2 * kGroups * kSlots * kBlockKv >= 512);
  for (const Config& config : kConfigs) EXPECT_TRUE(is_sound(config));
}

TEST(ForwardSm90LatencyConfig, AWarpGetsHalfOfItsRowsAndOfThoseItsBlocksColumns) {
  constexpr int kRows = 16, kRowBytes = 8, kFp32 = 4, kWarps = kGroups * kGroupWarps;
  for (const Config& config : kConfigs) {
    const int outputs = kRows / kGroups * config.head_dim, rows = kRows / kGroups * kRowBytes;
    const int swapped = kFp32 * outputs + kGroups * rows;
    const int sent = config.ranks == 1 ? 0 : kFp32 * outputs / config.ranks + rows;
    EXPECT_EQ(config.merge_bytes(), kWarps * (swapped + sent));
  }
}

// ---- the split

TEST(ForwardSm90LatencySplit, EveryTileHasOnePartAndPartsAreEven) {
  for (int tiles = 0; tiles <= 80; ++tiles) {
    const int ranks = 1 + tiles % 2, parts = kGroups * ranks;
    std::set<int> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int group = 0; group < kGroups; ++group) {
        const int part = part_of(rank, group, ranks), count = tiles_of(tiles, part, parts);
        EXPECT_GE(count, tiles / parts);
        EXPECT_LE(count, (tiles + parts - 1) / parts);
        for (int i = 0; i < count; ++i) {
          EXPECT_TRUE(seen.insert(part + i * parts).second) << tiles;
        }
      }
      // What the copies rely on: the first warpgroup has the most.
      EXPECT_GE(tiles_of(tiles, part_of(rank, 0, ranks), parts),
                tiles_of(tiles, part_of(rank, 1, ranks), parts));
    }
    EXPECT_EQ(static_cast<int>(seen.size()), tiles);
    EXPECT_TRUE(seen.empty() || *seen.rbegin() == tiles - 1);
  }
}

TEST(ForwardSm90LatencySplit, TwoTilesGoToTwoBlocks) {
  EXPECT_EQ(tiles_of(2, part_of(0, 0, 2), 4), 1);
  EXPECT_EQ(tiles_of(2, part_of(1, 0, 2), 4), 1);
}

struct Drawn {
  int len_q, len_kv, offset, left, right;
};

Sequence sequence_of(const Drawn& d) {
  Sequence s;
  s.len_q = s.rows_q = d.len_q;
  s.len_kv = d.len_kv;
  s.offset = d.offset;
  return s;
}

// Tiles outside of the span hold no visible pair, mask-free ones nothing else.
void check_span(const Drawn& d, int first) {
  const Sequence s = sequence_of(d);
  const Band band{d.left, d.right};
  const BandLimits limits = attention::band_limits(s, band);
  const int last = std::min(first + kBlockQ, d.len_q);
  const TileRange span = tile_range(limits, last, first, last, kBlockKv);
  ASSERT_LE(span.begin, span.end);
  for (int tile = 0; tile * kBlockKv < d.len_kv + 2 * kBlockKv; ++tile) {
    int visible = 0, pairs = 0;
    for (int query = first; query < last; ++query) {
      const KeyRange range = visible_keys(s, band, query);
      const attention::ColumnRange columns =
          attention::visible_columns(limits, query, tile * kBlockKv);
      for (int column = 0; column < kBlockKv; ++column, ++pairs) {
        const int key = tile * kBlockKv + column;
        const bool sees = key >= range.begin && key < range.end;
        ASSERT_EQ(sees, column >= columns.begin && column < columns.end)
            << "query " << query << " key " << key;
        visible += sees ? 1 : 0;
      }
    }
    const bool inside = tile >= span.begin && tile < span.end;
    ASSERT_TRUE(inside || visible == 0) << "tile " << tile << " is skipped but seen";
    ASSERT_TRUE(!inside || span.needs_mask(tile) || visible == pairs)
        << "tile " << tile << " needs a mask";
    ASSERT_TRUE(!inside || !span.needs_mask(tile) || visible < pairs)
        << "tile " << tile << " needs no mask";
  }
}

TEST(ForwardSm90LatencySplit, SpansAgreeWithTheDefinition) {
  for (const int len_q : {1, 64, 100, 150}) {
    for (const int len_kv : {0, 1, 64, 150, 256}) {
      for (const int offset : {-200, -64, -1, 0, 1, 63, 300}) {
        for (const int left : {-1, 0, 70}) {
          for (const int right : {-1, 0, 5, 130}) {
            for (int first = 0; first < len_q; first += kBlockQ) {
              check_span({len_q, len_kv, offset, left, right}, first);
              if (HasFatalFailure()) {
                FAIL() << "len_q " << len_q << " len_kv " << len_kv << " offset " << offset
                       << " window " << left << "," << right << " first " << first;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ForwardSm90LatencySplit, ABandOfFullTilesIsTheSame) {
  for (const int len_kv : {64, 256, 512}) {
    for (const int high : {-700, -65, -64, -1, 0, 1, 63, 64, 200, 600, attention::kMostRows}) {
      for (const int last_row : {1, 64, 100, 512}) {
        for (int first = 0; first < last_row; first += kBlockQ) {
          const BandLimits limits{-attention::kMostRows, high, len_kv};
          const int last = std::min(first + kBlockQ, last_row);
          const TileRange span = tile_range(limits, last, first, last, kBlockKv);
          const TileRange band = band_range(len_kv / kBlockKv, high, first, last);
          ASSERT_EQ(band.size(), span.size()) << "high " << high << " first " << first;
          for (int tile = span.begin; tile < span.end; ++tile) {
            ASSERT_EQ(band.needs_mask(tile), span.needs_mask(tile)) << "tile " << tile;
          }
        }
      }
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
  p.q = p.k = TensorDesc::contiguous(dtype, {2, 4, 128, head_dim_qk});
  p.v = p.o = TensorDesc::contiguous(dtype, {2, 4, 128, head_dim_v});
  p.lse = TensorDesc::contiguous(DType::f32, {2, 4, 128});
  return p;
}

std::string refusal(const Problem& problem, int32_t compute_capability = 90,
                    const char* targets = "80;89;90a") {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return refusal_on_gpu(latency_supports(), targets, *resolved,
                        {.device = gpu(compute_capability)});
}

TEST(ForwardSm90LatencyRefusal, NamesWhatItDoesNotCompute) {
  EXPECT_EQ(refusal(dense(DType::f16, 64, 64)), "");
  EXPECT_THAT(refusal(dense(DType::f16, 64, 64), 80), HasSubstr("compute capability is 8.0"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 64), 120), HasSubstr("compute capability is 12.0"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 64), 90, "80;89"), HasSubstr("has code for 80;89"));
  EXPECT_THAT(refusal(dense(DType::f32, 64, 64)), HasSubstr("q: dtype is f32"));
  EXPECT_THAT(refusal(dense(DType::f16, 60, 64)), HasSubstr("q: head dimension is 60"));
  EXPECT_THAT(refusal(dense(DType::f16, 64, 136)), HasSubstr("v: head dimension is 136"));
  Problem p = dense(DType::f16, 64, 64);
  p.o.dtype = DType::f32;
  EXPECT_THAT(refusal(p), HasSubstr("o: dtype is f32"));
  p = dense(DType::f16, 64, 64);
  p.k = TensorDesc::strided(DType::f16, {2, 4, 128, 64}, {4 * 128 * 68, 128 * 68, 68, 1});
  EXPECT_THAT(refusal(p), HasSubstr("k: row stride is 68"));
  p = dense(DType::f16, 64, 64);
  p.v = TensorDesc::strided(DType::f16, {2, 4, 128, 64}, {0, 128 * 64, 64, 1});
  EXPECT_THAT(refusal(p), HasSubstr("v: batch stride is 0"));
}

TEST(ForwardSm80LatencyRefusal, ComputesWhatTensorMapsCannotExpress) {
  const auto refusal80 = [](const Problem& problem, int32_t compute_capability) {
    const Result<ForwardProblem> resolved = resolve(problem);
    EXPECT_TRUE(resolved.ok()) << resolved.status().message();
    DeviceInfo device = gpu(compute_capability);
    device.shared_memory_per_block = compute_capability == 89 ? 99 * 1024 : 163 * 1024;
    return refusal_on_gpu(forward_sm80::latency::supports(), "80;90a", *resolved,
                          {.device = device});
  };
  Problem p = dense(DType::f16, 64, 128);
  EXPECT_EQ(refusal80(p, 80), "");
  EXPECT_EQ(refusal80(p, 89), "");
  EXPECT_EQ(refusal80(p, 90), "");
  EXPECT_THAT(refusal80(p, 75), HasSubstr("compute capability is 7.5"));
  EXPECT_THAT(refusal80(p, 120), HasSubstr("has code for 80;90a"));
  p.v = TensorDesc::strided(DType::f16, {2, 4, 128, 128}, {0, 128 * 128, 128, 1});
  EXPECT_EQ(refusal80(p, 80), "") << "a batch stride of 0";
  p.softcap = 1;
  EXPECT_THAT(refusal80(p, 80), HasSubstr("softcap: is 1"));
}

TEST(ForwardSm90LatencyRefusal, ComputesMasksLengthsAndGroups) {
  Problem p = dense(DType::bf16, 96, 128);
  p.k = TensorDesc::contiguous(DType::bf16, {2, 2, 77, 96});
  p.v = TensorDesc::contiguous(DType::bf16, {2, 2, 77, 128});
  p.seqlens_q = p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  p.causal = true;
  p.alignment = Alignment::given;
  p.causal_offsets = TensorDesc::contiguous(DType::i32, {2});
  p.window_left = 7;
  EXPECT_EQ(refusal(p), "");
}

TEST(ForwardSm90LatencyRefusal, CoverIsTheLeastThatWillDo) {
  const auto cover = [](const Problem& problem) {
    const Result<ForwardProblem> resolved = resolve(problem);
    EXPECT_TRUE(resolved.ok()) << resolved.status().message();
    return tile_bounds_of(*resolved);
  };
  const Problem p = dense(DType::f16, 64, 64);
  EXPECT_EQ(cover(p), TileBounds::none);
  Problem with = p;
  with.causal = true;
  EXPECT_EQ(cover(with), TileBounds::causal_only);
  with.window_left = 1000;
  EXPECT_EQ(cover(with), TileBounds::checked);
  with = p;
  with.window_right = 3;
  EXPECT_EQ(cover(with), TileBounds::causal_only);
  with.causal = true;
  with.alignment = Alignment::given;
  with.causal_offsets = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_EQ(cover(with), TileBounds::checked);
  with = p;
  with.k = with.v = TensorDesc::contiguous(DType::f16, {2, 4, 127, 64});
  EXPECT_EQ(cover(with), TileBounds::checked);
}

TEST(ForwardSm90LatencyRefusal, WholeIsWhatNeedsNoMask) {
  const auto whole = [](const Problem& problem) {
    const Result<ForwardProblem> resolved = resolve(problem);
    EXPECT_TRUE(resolved.ok()) << resolved.status().message();
    return tile_bounds_of(*resolved) == attention::latency::TileBounds::none;
  };
  Problem p = dense(DType::f16, 64, 64);
  EXPECT_TRUE(whole(p));
  Problem with = p;
  with.causal = true;
  EXPECT_FALSE(whole(with));
  with = p;
  with.window_left = 1000;
  EXPECT_FALSE(whole(with));
  with = p;
  with.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_FALSE(whole(with));
  with = p;
  with.k = with.v = TensorDesc::contiguous(DType::f16, {2, 4, 127, 64});
  EXPECT_FALSE(whole(with));
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm90::latency
