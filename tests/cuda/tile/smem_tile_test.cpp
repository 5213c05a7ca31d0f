// Swizzled shared-memory tiles: every element has its own place, the places are the hardware's, and
// the accesses of the kernels are free of bank conflicts.
#include "cuda/tile/smem_tile.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/grouped_tile.hpp"

namespace flashcore::cuda::tile {
namespace {

template <class Tile>
class SmemTileTest : public testing::Test {};

using Tiles = testing::Types<SmemTile<64, 64, 2>, SmemTile<64, 128, 2>, SmemTile<128, 128, 2>,
                             SmemTile<128, 64, 2>, SmemTile<32, 128, 2>, SmemTile<128, 256, 2>,
                             SmemTile<64, 64, 1>, SmemTile<32, 128, 1>, SmemTile<64, 128, 1>,
                             SmemTile<64, 32, 2>>;
TYPED_TEST_SUITE(SmemTileTest, Tiles);

TYPED_TEST(SmemTileTest, EveryElementHasItsOwnPlace) {
  std::set<uint32_t> seen;
  for (int row = 0; row < TypeParam::kRows; ++row) {
    for (int column = 0; column < TypeParam::kColumns; ++column) {
      const uint32_t offset = TypeParam::offset(row, column);
      EXPECT_LT(offset, static_cast<uint32_t>(TypeParam::kBytes));
      EXPECT_EQ(offset % TypeParam::kElementBytes, 0U);
      EXPECT_TRUE(seen.insert(offset).second) << row << ", " << column;
    }
  }
}

// A panel as TMA writes it: rows one after the other, then the hardware's permutation of offsets.
TYPED_TEST(SmemTileTest, PlacesAreTheHardwareSwizzle) {
  constexpr int kSpan = TypeParam::kPanelRowBytes;
  for (int row = 0; row < TypeParam::kRows; ++row) {
    for (int byte = 0; byte < TypeParam::kRowBytes; ++byte) {
      const int panel = byte / kSpan;
      // Bits 4 and up of the offset, exclusive or with the bits from 7 on: 3 of them at 128 bytes,
      // 2 at 64.
      const int plain = row * kSpan + byte % kSpan;
      const int mask = kSpan == 128 ? 7 : 3;
      const int swizzled = plain ^ (((plain / 128) & mask) * 16);
      const uint32_t want = static_cast<uint32_t>(panel * TypeParam::kPanelBytes + swizzled);
      EXPECT_EQ(static_cast<uint32_t>(swizzled),
                swizzle_bytes<kSpan>(static_cast<uint32_t>(plain)));
      if (byte % TypeParam::kElementBytes == 0) {
        EXPECT_EQ(TypeParam::offset(row, byte / TypeParam::kElementBytes), want);
      }
    }
  }
}

template <class Tile, int kStep>
void expect_advance() {
  if constexpr (kStep <= Tile::kPanelChunks) {
    for (int row = 0; row < Tile::kRows; ++row) {
      for (int chunk = 0; chunk < kStep; ++chunk) {
        for (int i = 0; kStep * i < Tile::kRowChunks; ++i) {
          EXPECT_EQ(Tile::template advance<kStep>(Tile::chunk_offset(row, chunk), i),
                    Tile::chunk_offset(row, chunk + kStep * i));
          constexpr uint32_t kBase = 5 * kTileAlignment;  // an address, not an offset
          EXPECT_EQ(Tile::template advance<kStep>(kBase + Tile::chunk_offset(row, chunk), i),
                    kBase + Tile::chunk_offset(row, chunk + kStep * i));
        }
      }
    }
  }
}

TYPED_TEST(SmemTileTest, AdvanceStepsAlongARow) {
  expect_advance<TypeParam, 1>();
  expect_advance<TypeParam, 2>();
  expect_advance<TypeParam, 4>();
}

// ldmatrix reads eight consecutive rows of one chunk column at a time.
TYPED_TEST(SmemTileTest, EightRowsOfAColumnLieInEightBankGroups) {
  for (int row = 0; row < TypeParam::kRows; row += 8) {
    for (int chunk = 0; chunk < TypeParam::kRowChunks; ++chunk) {
      std::set<uint32_t> groups;
      for (int i = 0; i < 8; ++i) {
        groups.insert(TypeParam::chunk_offset(row + i, chunk) / kChunkBytes % kBankGroups);
      }
      EXPECT_EQ(groups.size(), 8U) << "rows from " << row << ", chunk " << chunk;
    }
  }
}

// A copy writes eight consecutive chunks of a panel at a time.
TYPED_TEST(SmemTileTest, EightConsecutiveChunksLieInEightBankGroups) {
  constexpr int kRowsOfEight = 8 / TypeParam::kPanelChunks;
  for (int panel = 0; panel < TypeParam::kPanels; ++panel) {
    for (int row = 0; row < TypeParam::kRows; row += kRowsOfEight) {
      std::set<uint32_t> groups;
      for (int i = 0; i < 8; ++i) {
        const uint32_t offset =
            TypeParam::chunk_offset(row + i / TypeParam::kPanelChunks,
                                    panel * TypeParam::kPanelChunks + i % TypeParam::kPanelChunks);
        groups.insert(offset / kChunkBytes % kBankGroups);
      }
      EXPECT_EQ(groups.size(), 8U);
    }
  }
}

// ---- panels of 8 rows together

template <class Tile>
class GroupedTileTest : public testing::Test {};

using GroupedTiles = testing::Types<GroupedTile<128, 64>, GroupedTile<128, 128>,
                                    GroupedTile<128, 192>, GroupedTile<64, 256>>;
TYPED_TEST_SUITE(GroupedTileTest, GroupedTiles);

// A box of TMA: column of a panel, row of 8, panel, group, and then the hardware's permutation.
TYPED_TEST(GroupedTileTest, PlacesAreThoseOfABox) {
  uint32_t plain = 0;
  for (int group = 0; group < TypeParam::kRows / 8; ++group) {
    for (int panel = 0; panel < TypeParam::kPanels; ++panel) {
      for (int row = 8 * group; row < 8 * (group + 1); ++row) {
        for (int chunk = 8 * panel; chunk < 8 * (panel + 1); ++chunk, plain += kChunkBytes) {
          EXPECT_EQ(TypeParam::chunk_offset(row, chunk), swizzle_bytes<128>(plain));
        }
      }
    }
  }
  EXPECT_EQ(plain, static_cast<uint32_t>(TypeParam::kBytes));
}

// What wgmma reads by the offsets of a descriptor: the stride offset leads to the
// next 8 rows, the leading offset of V and the step of K to the next panel.
TYPED_TEST(GroupedTileTest, PlacesAreThoseOfADescriptor) {
  for (int row = 0; row < TypeParam::kRows; ++row) {
    for (int chunk = 0; chunk < TypeParam::kRowBytes / kChunkBytes; ++chunk) {
      const auto plain = static_cast<uint32_t>(row / 8 * group_bytes<TypeParam>() + row % 8 * 128 +
                                               chunk % 2 * 16);
      const uint32_t step = k_major_step<TypeParam>(chunk / 2);
      EXPECT_EQ(TypeParam::chunk_offset(row, chunk), swizzle_bytes<128>(plain + step));
    }
  }
  EXPECT_EQ(mn_major_descriptor<TypeParam>(0, 0) >> 16 & 0x3fff,
            static_cast<uint64_t>(TypeParam::kPanelBytes / 16));
}

TEST(GroupedTile, OtherTilesHaveTheirRowsTogether) {
  EXPECT_EQ((group_bytes<SmemTile<128, 128, 2>>()), 1024);
  EXPECT_EQ((group_bytes<GroupedTile<128, 128>>()), 2048);
}

}  // namespace
}  // namespace flashcore::cuda::tile
