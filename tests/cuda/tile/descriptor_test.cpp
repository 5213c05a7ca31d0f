// wgmma descriptors: the fields, the known values of two worked tiles, and, for every element, that
// an operand read by the descriptor's rules is the tile's element.
#include "cuda/tile/descriptor.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace flashcore::cuda::tile {
namespace {

uint32_t field(uint64_t descriptor, int first_bit, int bits) {
  return static_cast<uint32_t>((descriptor >> first_bit) & ((uint64_t{1} << bits) - 1));
}

uint32_t start_bytes(uint64_t descriptor) { return field(descriptor, 0, 14) * 16; }
uint32_t leading_bytes(uint64_t descriptor) { return field(descriptor, 16, 14) * 16; }
uint32_t stride_bytes(uint64_t descriptor) { return field(descriptor, 32, 14) * 16; }

TEST(Descriptor, FieldsLieWhereTheHardwareReadsThem) {
  const uint64_t d = smem_descriptor(0x1a400, 8192, 1024, DescriptorSwizzle::span_128);
  EXPECT_EQ(field(d, 0, 14), 0x1a40U);
  EXPECT_EQ(field(d, 14, 2), 0U);
  EXPECT_EQ(field(d, 16, 14), 512U);
  EXPECT_EQ(field(d, 30, 2), 0U);
  EXPECT_EQ(field(d, 32, 14), 64U);
  EXPECT_EQ(field(d, 46, 3), 0U);
  EXPECT_EQ(field(d, 49, 3), 0U);  // base offset
  EXPECT_EQ(field(d, 52, 10), 0U);
  EXPECT_EQ(field(d, 62, 2), 1U);
  EXPECT_EQ(field(smem_descriptor(0, 0, 0, DescriptorSwizzle::span_64), 62, 2), 2U);
  EXPECT_EQ(field(smem_descriptor(0, 0, 0, DescriptorSwizzle::span_32), 62, 2), 3U);
  EXPECT_EQ(smem_descriptor(0, 0, 0, DescriptorSwizzle::none), 0U);
}

TEST(Descriptor, HighWordOfTheUsualTileIsAConstant) {
  using Tile = SmemTile<128, 128, 2>;
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(k_major_descriptor<Tile>(2048, 0, step) >> 32, 0x40000040U);
    EXPECT_EQ(mn_major_descriptor<Tile>(2048, step) >> 32, 0x40000040U);
  }
}

TEST(Descriptor, KnownStepsOfA64By128Tile) {
  using Tile = SmemTile<64, 128, 2>;
  const uint32_t want[8] = {0, 2, 4, 6, 512, 514, 516, 518};
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(field(k_major_descriptor<Tile>(0, 0, step), 0, 14), want[step]);
  }
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(field(mn_major_descriptor<Tile>(0, step), 0, 14), static_cast<uint32_t>(128 * step));
    EXPECT_EQ(leading_bytes(mn_major_descriptor<Tile>(0, step)), 8192U);
  }
  EXPECT_EQ(leading_bytes(mn_major_descriptor<SmemTile<128, 128, 2>>(0, 0)), 16384U);
}

// The 128-byte swizzle permutes address bits, so a start inside the pattern is plain addition
// first.
constexpr uint32_t kTileAddress = 7 * kTileAlignment;

template <class Tile>
void expect_k_major(int rows) {
  for (int row0 = 0; row0 + rows <= Tile::kRows; row0 += rows) {
    for (int step = 0; step < Tile::kColumns / 16; ++step) {
      const uint64_t d = k_major_descriptor<Tile>(kTileAddress, row0, step);
      for (int row = 0; row < rows; ++row) {
        for (int k = 0; k < 16; ++k) {
          const uint32_t plain = start_bytes(d) + static_cast<uint32_t>(row / 8) * stride_bytes(d) +
                                 static_cast<uint32_t>(row % 8) * 128 +
                                 static_cast<uint32_t>(k) * 2;
          EXPECT_EQ(swizzle_bytes<128>(plain),
                    kTileAddress + Tile::offset(row0 + row, 16 * step + k));
        }
      }
    }
  }
}

TEST(Descriptor, KMajorReadsRowsOfTheTile) {
  expect_k_major<SmemTile<64, 64, 2>>(64);
  expect_k_major<SmemTile<64, 128, 2>>(64);
  expect_k_major<SmemTile<128, 64, 2>>(128);
  expect_k_major<SmemTile<128, 128, 2>>(64);
  expect_k_major<SmemTile<192, 128, 2>>(64);
  expect_k_major<SmemTile<128, 256, 2>>(128);
}

template <class Tile>
void expect_mn_major() {
  for (int step = 0; step < Tile::kRows / 16; ++step) {
    const uint64_t d = mn_major_descriptor<Tile>(kTileAddress, step);
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < Tile::kColumns; ++n) {
        const uint32_t plain = start_bytes(d) + static_cast<uint32_t>(n / 64) * leading_bytes(d) +
                               static_cast<uint32_t>(k / 8) * stride_bytes(d) +
                               static_cast<uint32_t>(k % 8) * 128 +
                               static_cast<uint32_t>(n % 64) * 2;
        EXPECT_EQ(swizzle_bytes<128>(plain), kTileAddress + Tile::offset(16 * step + k, n));
      }
    }
  }
}

TEST(Descriptor, MnMajorReadsColumnsOfTheTile) {
  expect_mn_major<SmemTile<64, 64, 2>>();
  expect_mn_major<SmemTile<64, 128, 2>>();
  expect_mn_major<SmemTile<128, 64, 2>>();
  expect_mn_major<SmemTile<128, 128, 2>>();
  expect_mn_major<SmemTile<64, 256, 2>>();
}

}  // namespace
}  // namespace flashcore::cuda::tile
