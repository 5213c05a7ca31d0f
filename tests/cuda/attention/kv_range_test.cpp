// Which tiles of keys a group of queries visits, in the 32 bits of kernels, against the definition
// (problem/visibility.hpp) in 64.
#include "cuda/attention/kv_range.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>

namespace flashcore::cuda::attention {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t of(std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random_() % values.size()));
  }
  int64_t below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }

 private:
  std::mt19937_64 random_;
};

Sequence sequence(int64_t len_q, int64_t len_kv, int64_t offset) {
  Sequence s;
  s.len_q = s.rows_q = len_q;
  s.len_kv = len_kv;
  s.offset = offset;
  return s;
}

bool sees(const Sequence& s, const Band& band, int64_t query, int64_t key) {
  const KeyRange range = visible_keys(s, band, query);
  return key >= range.begin && key < range.end;
}

// Tiles outside of the range hold no visible pair, mask-free ones nothing else, and the ends are
// tight.
void check_range(const Sequence& s, const Band& band, int first, int last, int block_kv) {
  const TileRange range =
      tile_range(band_limits(s, band), static_cast<int>(s.len_q), first, last, block_kv);
  const int64_t tiles = (s.len_kv + block_kv - 1) / block_kv;
  const auto visible_in = [&](int64_t tile) {
    int64_t visible = 0, pairs = 0;
    for (int64_t i = first; i < std::min<int64_t>(last, s.len_q); ++i) {
      for (int64_t j = tile * block_kv; j < (tile + 1) * block_kv; ++j) {
        visible += sees(s, band, i, j) ? 1 : 0;
        ++pairs;
      }
    }
    return std::pair(visible, pairs);
  };
  ASSERT_LE(range.begin, range.end);
  ASSERT_LE(range.full_begin, range.full_end);
  for (int tile = 0; tile < tiles; ++tile) {
    const auto [visible, pairs] = visible_in(tile);
    const bool inside = tile >= range.begin && tile < range.end;
    ASSERT_TRUE(inside || visible == 0) << "tile " << tile << " is skipped but seen";
    if (!inside) continue;
    ASSERT_EQ(range.needs_mask(tile), visible < pairs) << "tile " << tile;
  }
  if (range.empty()) return;
  ASSERT_GT(visible_in(range.begin).first, 0);
  ASSERT_GT(visible_in(range.end - 1).first, 0);
}

TEST(KvRange, AgreesWithTheDefinitionOnSmallProblems) {
  for (const int64_t len_q : {0, 1, 7, 16, 23}) {
    for (const int64_t len_kv : {0, 1, 8, 19, 32}) {
      for (const int64_t offset : {-40, -9, -1, 0, 3, 12, 40}) {
        for (const int64_t left : {-1, 0, 5, 20}) {
          for (const int64_t right : {-1, 0, 4, 30}) {
            for (const int first : {0, 8, 16}) {
              check_range(sequence(len_q, len_kv, offset), {left, right}, first, first + 8, 8);
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

// tile_range by the functions of the definition.
TileRange defined_range(const Sequence& s, const Band& band, int64_t first, int64_t last,
                        int block_kv) {
  last = std::min(last, s.len_q);
  const KeyRange any = visible_keys(s, band, first, last);
  if (any.empty()) return {};
  const KeyRange all = common_keys(s, band, first, last);
  TileRange range{static_cast<int>(any.begin / block_kv),
                  static_cast<int>((all.begin + block_kv - 1) / block_kv),
                  static_cast<int>(all.end / block_kv),
                  static_cast<int>((any.end + block_kv - 1) / block_kv)};
  if (range.full_end <= range.full_begin) range.full_begin = range.full_end = range.end;
  return range;
}

TEST(KvRange, AgreesWithSixtyFourBitsUpToTheLongestSequencesAndFurthestOffsets) {
  Draw draw(5);
  constexpr int64_t kBeyond = int64_t{1} << 32, kMostKeys = kMostRows - 1;
  for (int n = 0; n < 300000; ++n) {
    const int64_t len_q = draw.of({0, 1, 63, 64, 65, 100, 1000, kMostKeys - 1, kMostKeys});
    const int64_t offset = draw.of({0, 1, -1, 63, -64, 500, -500, 1000, kMostKeys, -kMostKeys,
                                    kMostRows, -kMostRows, kBeyond, -kBeyond}) +
                           draw.of({0, 0, 1, -1, 7});
    const Sequence s =
        sequence(len_q, draw.of({0, 1, 64, 127, 128, 129, 1000, kMostKeys - 1, kMostKeys}), offset);
    const Band band{draw.of({-1, 0, 1, 7, 100, 999, kMostKeys, kMostRows, kBeyond}),
                    draw.of({-1, 0, 1, 7, 100, 999, kMostKeys, kMostRows, kBeyond})};
    const auto rows = static_cast<int>(draw.of({16, 32, 64, 128}));
    const auto block = static_cast<int>(draw.of({16, 32, 64, 128}));
    const int64_t last_tile = std::max<int64_t>(len_q - 1, 0) / rows;
    const auto first = static_cast<int>(
        rows * std::clamp<int64_t>(draw.of({0, 1, 2, last_tile, last_tile - 1, last_tile / 2}), 0,
                                   last_tile));
    const auto what = [&] {
      return testing::Message() << "len_q " << len_q << " len_kv " << s.len_kv << " offset "
                                << offset << " window " << band.left << "," << band.right
                                << " rows " << first << "+" << rows << " block " << block;
    };
    const BandLimits limits = band_limits(s, band);
    const TileRange wanted = defined_range(s, band, first, int64_t{first} + rows, block);
    const TileRange found = tile_range(limits, static_cast<int>(len_q), first, first + rows, block);
    ASSERT_EQ(found.begin, wanted.begin) << what();
    ASSERT_EQ(found.end, wanted.end) << what();
    for (const int tile : {found.begin, found.begin + 1, wanted.full_begin - 1, wanted.full_begin,
                           wanted.full_end - 1, wanted.full_end, found.end - 1}) {
      if (tile < found.begin || tile >= found.end) continue;
      ASSERT_EQ(found.needs_mask(tile), wanted.needs_mask(tile)) << what() << " tile " << tile;
    }
    if (len_q == 0) continue;
    const auto query = static_cast<int>(first + draw.below(rows));
    if (query >= len_q) continue;
    const int64_t near = draw.of({wanted.begin, wanted.end, wanted.full_begin, wanted.full_end, 0});
    const auto key = static_cast<int>(
        std::clamp<int64_t>(near + draw.of({0, -1, 1}), 0, kMostKeys / block) * block);
    const ColumnRange columns = visible_columns(limits, query, key);
    for (int c = 0; c < block; ++c) {
      ASSERT_EQ(c >= columns.begin && c < columns.end, sees(s, band, query, int64_t{key} + c))
          << what() << " query " << query << " key " << key + c;
    }
  }
}

TEST(KvRange, SaysWhetherTheBandIsOpenToTheLeft) {
  EXPECT_TRUE(band_limits(-1, 0, 5, 100).open_left());
  EXPECT_TRUE(band_limits(int64_t{1} << 32, 0, 5, 100).open_left());
  EXPECT_FALSE(band_limits(100, -1, 5, 100).open_left());
}

}  // namespace
}  // namespace flashcore::cuda::attention
