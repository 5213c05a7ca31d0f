// The fragment maps against the instruction definitions, element by element: every map covers its
// operand exactly once, and what the kernels rely on follows from the maps.
#include "cuda/tile/fragment.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace flashcore::cuda::tile {
namespace {

constexpr int kLanes = 32;

// Every cell of rows x columns is held by exactly one (thread, element).
template <class Map>
void expect_bijection(Map map, int threads, int elements, int rows, int columns) {
  ASSERT_EQ(threads * elements, rows * columns);
  std::set<std::pair<int, int>> seen;
  for (int thread = 0; thread < threads; ++thread) {
    for (int e = 0; e < elements; ++e) {
      const Cell cell = map(thread, e);
      ASSERT_GE(cell.row, 0);
      ASSERT_LT(cell.row, rows);
      ASSERT_GE(cell.column, 0);
      ASSERT_LT(cell.column, columns);
      EXPECT_TRUE(seen.emplace(cell.row, cell.column).second)
          << "thread " << thread << " element " << e;
    }
  }
}

TEST(Fragment, EveryOperandIsCoveredOnce) {
  expect_bijection(mma_k16_a, kLanes, 8, 16, 16);
  expect_bijection(mma_k16_b, kLanes, 4, 16, 8);
  expect_bijection(mma_k32_a, kLanes, 16, 16, 32);
  expect_bijection(mma_k32_b, kLanes, 8, 32, 8);
  expect_bijection(mma_c, kLanes, 4, 16, 8);
  for (int n = 8; n <= 256; n += 8) expect_bijection(wgmma_c, 4 * kLanes, n / 2, 64, n);
  expect_bijection(wgmma_k16_a, 4 * kLanes, 8, 64, 16);
}

// The registers as the instruction set manual lists them, one case after the other.
TEST(Fragment, MatchesTheManualRegisterByRegister) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane >> 2, in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {  // m16n8k16 A
      const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
      const int column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
      EXPECT_EQ(mma_k16_a(lane, i).row, row);
      EXPECT_EQ(mma_k16_a(lane, i).column, column);
    }
    for (int i = 0; i < 4; ++i) {  // m16n8k16 B and C
      EXPECT_EQ(mma_k16_b(lane, i).row, i < 2 ? in_group * 2 + i : in_group * 2 + (i - 2) + 8);
      EXPECT_EQ(mma_k16_b(lane, i).column, group);
      EXPECT_EQ(mma_c(lane, i).row, i < 2 ? group : group + 8);
      EXPECT_EQ(mma_c(lane, i).column, in_group * 2 + i % 2);
    }
    for (int i = 0; i < 16; ++i) {  // m16n8k32 A
      const bool upper = i < 4 || (i >= 8 && i < 12);
      EXPECT_EQ(mma_k32_a(lane, i).row, upper ? group : group + 8);
      EXPECT_EQ(mma_k32_a(lane, i).column, in_group * 4 + i % 4 + (i < 8 ? 0 : 16));
    }
    for (int i = 0; i < 8; ++i) {  // m16n8k32 B
      EXPECT_EQ(mma_k32_b(lane, i).row, in_group * 4 + i % 4 + (i < 4 ? 0 : 16));
      EXPECT_EQ(mma_k32_b(lane, i).column, group);
    }
  }
}

// Two neighbouring accumulators, packed in order, are the A operand of the next product.
TEST(Fragment, PackedAccumulatorsAreTheNextOperand) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < 8; ++e) {
      const int product = e / 4;
      const Cell from = mma_c(lane, e % 4), to = mma_k16_a(lane, e);
      EXPECT_EQ(from.row, to.row);
      EXPECT_EQ(8 * product + from.column, to.column);
    }
  }
}

TEST(Fragment, WgmmaAccumulatorIsThatOfEachWarp) {
  for (int thread = 0; thread < 4 * kLanes; ++thread) {
    for (int e = 0; e < 128; ++e) {  // the formula of the manual, N = 256
      const int lane = thread % 32, warp = thread / 32;
      EXPECT_EQ(wgmma_c(thread, e).row, 16 * warp + lane / 4 + 8 * ((e / 2) % 2));
      EXPECT_EQ(wgmma_c(thread, e).column, 8 * (e / 4) + 2 * (lane % 4) + e % 2);
    }
  }
}

TEST(Fragment, KeysOfSlotsAreAPermutationWithinSixteen) {
  const int listed[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  for (int slot = 0; slot < 64; ++slot) {
    EXPECT_EQ(fp8_key_of_slot(slot), slot / 16 * 16 + listed[slot % 16]);
  }
}

// What lands in k-slot s of the 8-bit A operand is the score of key fp8_key_of_slot(s), same row.
TEST(Fragment, EightBitOperandHoldsTheKeysOfItsSlots) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < 16; ++e) {
      const AccumulatorElement source = fp8_p_source(e);
      const Cell from = mma_c(lane, source.e), to = mma_k32_a(lane, e);
      EXPECT_EQ(from.row, to.row);
      EXPECT_EQ(8 * source.product + from.column, fp8_key_of_slot(to.column));
    }
  }
}

// The whole of the 8-bit P V, as the kernel does it, against a plain product: P from accumulators,
// V from ldmatrix.trans on pairs of bytes, even and odd dimensions picked by byte.
TEST(Fragment, EightBitProductEqualsThePlainOne) {
  constexpr int kRows = 16, kKeys = 32, kDims = 16;
  std::mt19937 random(7);
  std::uniform_int_distribution<int> value(-9, 9);
  std::vector<int> p(kRows * kKeys), v(kKeys * kDims);
  for (int& x : p) x = value(random);
  for (int& x : v) x = value(random);

  std::vector<int> a(kRows * kKeys);  // by row and slot
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < 16; ++e) {
      const AccumulatorElement source = fp8_p_source(e);
      const Cell score = mma_c(lane, source.e), slot = mma_k32_a(lane, e);
      a[static_cast<size_t>(slot.row * kKeys + slot.column)] =
          p[static_cast<size_t>(score.row * kKeys + 8 * source.product + score.column)];
    }
  }
  for (int odd = 0; odd < 2; ++odd) {
    std::vector<int> b(kKeys * 8);  // by slot and column
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int e = 0; e < 8; ++e) {
        // Matrix m has keys 8m..8m+7; a lane has its pairs of rows 2t and 2t + 1 in column g.
        const int picked = e % 4, matrix = 2 * (e / 4) + picked / 2;
        const int key = 8 * matrix + 2 * (lane % 4) + picked % 2, dim = 2 * (lane / 4) + odd;
        const Cell slot = mma_k32_b(lane, e);
        b[static_cast<size_t>(slot.row * 8 + slot.column)] =
            v[static_cast<size_t>(key * kDims + dim)];
      }
    }
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < 8; ++column) {
        int got = 0, want = 0;
        for (int k = 0; k < kKeys; ++k) {
          got += a[static_cast<size_t>(row * kKeys + k)] * b[static_cast<size_t>(k * 8 + column)];
          want += p[static_cast<size_t>(row * kKeys + k)] *
                  v[static_cast<size_t>(k * kDims + 2 * column + odd)];
        }
        EXPECT_EQ(got, want) << "row " << row << " column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace flashcore::cuda::tile
