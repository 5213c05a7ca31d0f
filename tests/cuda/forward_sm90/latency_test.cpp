// What of forward_sm90_latency needs no GPU: its resources, how keys are split, and which tiles need a mask.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::forward_sm90::latency {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace)
using namespace attention::latency;
using attention::BandLimits, attention::tile_range, attention::TileRange;

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

// ---- what an instance takes for granted

TEST(ForwardSm90LatencyBounds, CoverIsTheLeastThatWillDo) {
  const auto cover = [](const Problem& p) { return tile_bounds_of(tests::resolved(p)); };
  const Problem p = tests::dense_heads(DType::f16, 64, 64, 128);
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
  with = p;
  with.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_NE(cover(with), TileBounds::none);
  with = p;
  with.window_left = 1000;
  EXPECT_NE(cover(with), TileBounds::none);
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm90::latency
