// The XOR swizzle: a permutation within each row, free of bank conflicts where the plain layout has
// seven a phase, and the short cuts that the kernels take agree with its definition.
#include "cuda/tile/swizzle.hpp"

#include <gtest/gtest.h>

#include <set>

namespace flashcore::cuda::tile {
namespace {

constexpr int kRows = 128;

template <class RowBytes>
class SwizzleTest : public testing::Test {};

template <int kBytes>
struct RowBytes {
  static constexpr int value = kBytes;
};

using AllRowBytes = testing::Types<RowBytes<64>, RowBytes<128>, RowBytes<256>>;
TYPED_TEST_SUITE(SwizzleTest, AllRowBytes);

TYPED_TEST(SwizzleTest, PermutesTheChunksOfEachRow) {
  constexpr int kBytes = TypeParam::value, kChunks = kBytes / kChunkBytes;
  for (int row = 0; row < kRows; ++row) {
    std::set<int> stored;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int place = swizzle_chunk<kBytes>(row, chunk);
      EXPECT_GE(place, 0);
      EXPECT_LT(place, kChunks);
      stored.insert(place);
    }
    EXPECT_EQ(stored.size(), static_cast<std::size_t>(kChunks)) << "row " << row;
  }
}

TYPED_TEST(SwizzleTest, PlacesEveryElementOnceAndKeepsChunksWhole) {
  constexpr int kBytes = TypeParam::value, kColumns = kBytes / 2;
  std::set<int> offsets;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const int offset = swizzle_offset<kBytes>(row, column);
      EXPECT_EQ(offset / kColumns, row);
      EXPECT_EQ(offset % 8, column % 8);
      EXPECT_EQ(offset - column % 8, swizzle_offset<kBytes>(row, column - column % 8));
      offsets.insert(offset);
    }
  }
  EXPECT_EQ(offsets.size(), static_cast<std::size_t>(kRows * kColumns));
}

TYPED_TEST(SwizzleTest, FragmentLoadsConflictWithoutItAndNotWithIt) {
  constexpr int kBytes = TypeParam::value;
  // Rows of 64 bytes fill 128 in pairs, so 8 rows lie in 2 groups, 4 deep; longer rows all in one.
  constexpr int kPlainPhase = kBytes == 64 ? 3 : 7;
  for (int row = 0; row < kRows; row += 16) {
    for (int column = 0; column < kBytes / 2; column += 16) {
      EXPECT_EQ(fragment_conflicts<kBytes>(row, column, false), 4 * kPlainPhase);
      EXPECT_EQ(fragment_conflicts<kBytes>(row, column, true), 0);
    }
  }
}

TYPED_TEST(SwizzleTest, CopiesOfWholeRowsNeverConflict) {
  constexpr int kBytes = TypeParam::value;
  for (int row = 0; row < kRows; row += 8) {
    EXPECT_EQ(copy_conflicts<kBytes>(row, false), 0);
    EXPECT_EQ(copy_conflicts<kBytes>(row, true), 0);
  }
}

TYPED_TEST(SwizzleTest, ColumnStepIsAnXor) {
  constexpr int kBytes = TypeParam::value, kColumns = kBytes / 2;
  for (int width : {8, 16}) {  // the bits below `width` belong to c
    for (int row0 = 0; row0 < 64; row0 += 8) {
      for (int column0 = 0; column0 < kColumns; column0 += width) {
        for (int r = 0; r < 16; ++r) {
          for (int c = 0; c < width; ++c) {
            EXPECT_EQ(swizzle_offset<kBytes>(row0 + r, column0 + c),
                      (swizzle_offset<kBytes>(r, c) ^ column0) + row0 * kColumns);
          }
        }
      }
    }
  }
}

TYPED_TEST(SwizzleTest, RowStepIsAnXorForLongRows) {
  constexpr int kBytes = TypeParam::value, kColumns = kBytes / 2;
  if constexpr (kBytes >= 128) {
    for (int step : {1, 2, 4, 8, 16, 32}) {
      for (int rows = 0; rows < 128; rows += step) {
        for (int r = 0; r < step; ++r) {
          for (int c = 0; c < kColumns; ++c) {
            EXPECT_EQ(swizzle_offset<kBytes>(r + rows, c),
                      (swizzle_offset<kBytes>(r, c) ^ swizzle_row_step(rows)) + rows * kColumns);
          }
        }
      }
    }
  }
}

TEST(BankConflicts, CountsCyclesBeyondTheFirst) {
  EXPECT_EQ(bank_conflicts({0, 16, 32, 48, 64, 80, 96, 112}), 0);        // one of each group
  EXPECT_EQ(bank_conflicts({0, 0, 0, 0, 0, 0, 0, 0}), 0);                // one address, one cycle
  EXPECT_EQ(bank_conflicts({0, 128, 32, 48, 64, 80, 96, 112}), 1);       // two in group 0
  EXPECT_EQ(bank_conflicts({0, 128, 256, 384, 512, 640, 768, 896}), 7);  // eight in group 0
}

}  // namespace
}  // namespace flashcore::cuda::tile
