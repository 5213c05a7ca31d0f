// The WMMA fragment maps: every element of a tile is held by exactly one (lane, register), and the
// properties that the kernels use hold. That the hardware agrees is checked on a device by the
// probe.
#include "cuda/tile/wmma_fragment.hpp"

#include <gtest/gtest.h>

#include <array>

namespace flashcore::cuda::tile {
namespace {

constexpr int kLanes = 32;

template <class Map>
void expect_every_element_once(const Map& map, int registers) {
  std::array<std::array<int, kWmmaTile>, kWmmaTile> holders{};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int reg = 0; reg < registers; ++reg) {
      const Coord at = map(lane, reg);
      ASSERT_TRUE(at.row >= 0 && at.row < kWmmaTile) << lane << ' ' << reg;
      ASSERT_TRUE(at.column >= 0 && at.column < kWmmaTile) << lane << ' ' << reg;
      ++holders[static_cast<std::size_t>(at.row)][static_cast<std::size_t>(at.column)];
    }
  }
  for (const auto& row : holders) {
    for (int count : row) EXPECT_EQ(count, 1);
  }
}

TEST(WmmaFragment, AccumulatorHoldsEveryElementOnce) {
  expect_every_element_once(wmma_accumulator, kWmmaAccumulatorRegisters);
}

TEST(WmmaFragment, OperandAHoldsEveryElementOnce) {
  expect_every_element_once(wmma_operand_a, kWmmaOperandRegisters);
}

TEST(WmmaFragment, OperandBHoldsEveryElementOnce) {
  expect_every_element_once(wmma_operand_b, kWmmaOperandRegisters);
}

TEST(WmmaFragment, ARowLiesInFourNeighbouringLanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int reg = 0; reg < kWmmaAccumulatorRegisters; ++reg) {
      EXPECT_EQ(wmma_accumulator(lane, reg).row, lane / 4 + 8 * wmma_accumulator_row_slot(reg));
    }
  }
}

TEST(WmmaFragment, RegistersComeInPairsOfNeighbouringColumns) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int reg = 0; reg < kWmmaAccumulatorRegisters; reg += 2) {
      const Coord first = wmma_accumulator(lane, reg), second = wmma_accumulator(lane, reg + 1);
      EXPECT_EQ(first.row, second.row);
      EXPECT_EQ(first.column + 1, second.column);
      EXPECT_EQ(first.column % 2, 0);
    }
  }
}

// The kernels add lane 0's element to a lane's first one, to turn most of an address into a
// constant.
TEST(WmmaFragment, LaneAndRegisterPartsAdd) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const Coord first = wmma_accumulator(lane, 0);
    EXPECT_LT(first.column, 8);
    for (int reg = 0; reg < kWmmaAccumulatorRegisters; reg += 2) {
      const Coord step = wmma_accumulator(0, reg), at = wmma_accumulator(lane, reg);
      EXPECT_EQ(at.row, first.row + step.row);
      EXPECT_EQ(at.column, first.column + step.column);
      EXPECT_EQ(step.row % 8, 0);
      EXPECT_EQ(step.column % 8, 0);
    }
  }
}

// An ldmatrix of four 8x8 matrices fills register pair m of lane l from row l / 4, columns
// 2 (l % 4) and +1 of matrix m. The operand maps must be that, for the matrices in the order in
// which the swizzled loads address them.
TEST(WmmaFragment, OperandsMatchLdmatrix) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int reg = 0; reg < kWmmaOperandRegisters; ++reg) {
      const int matrix = reg / 2, major = lane / 4, minor = 2 * (lane % 4) + reg % 2;
      const Coord a = wmma_operand_a(lane, reg);  // matrices: rows 0 and 8 of k 0, then of k 8
      EXPECT_EQ(a.row, 8 * (matrix % 2) + major);
      EXPECT_EQ(a.column, 8 * (matrix / 2) + minor);
      const Coord b = wmma_operand_b(lane, reg);  // matrices: k 0 and 8 of columns 0, then of 8
      EXPECT_EQ(b.row, 8 * (matrix % 2) + minor);
      EXPECT_EQ(b.column, 8 * (matrix / 2) + major);
    }
  }
}

}  // namespace
}  // namespace flashcore::cuda::tile
