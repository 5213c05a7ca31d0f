// The layout of the sums of dQ while blocks of keys add to them: by query tiles,
// and within a tile in the order of warps' accumulators, four neighbours per lane.
//
// constexpr: shared by kernels and host tests.
#pragma once

#include <cstdint>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/backward_sm80/general/config.hpp"

namespace flashcore::cuda::backward_sm80::general {

// Tiles per query head in the workspace; in a packed batch, slots of packed_tiles.hpp.
constexpr int64_t joint_head_tiles(bool packed, int64_t rows, int64_t batch, int block_q) {
  return packed ? attention::packed_slots(rows, batch, block_q) : (rows + block_q - 1) / block_q;
}

template <JointConfig kConfig>
struct JointSums {
  static constexpr int kRowWarps = kConfig.dq_row_warps();
  static constexpr int kColumnWarps = kConfig.warps / kRowWarps;
  static constexpr int kColumns = kConfig.dq_columns() / 8;  // m16n8 products of a warp's columns
  static constexpr int kTileElements = kConfig.block_q * kConfig.head_dim;
  static_assert(2 * kColumns * 128 * kConfig.warps == kTileElements);

  // The offset of lane 0's elements of a warp's product (row_tile, column) in the tile.
  static constexpr int offset(int warp, int row_tile, int column) {
    return ((warp * 2 + row_tile) * kColumns + column) * 128;
  }
  // The warp's first row and column, in products.
  static constexpr int first_row_tile(int warp) { return warp / kColumnWarps * 2; }
  static constexpr int first_column(int warp) { return warp % kColumnWarps * kColumns; }

  // The inverse: the offset of the product with 16 rows `row_tile` and 8 columns `column`.
  static constexpr int product_offset(int row_tile, int column) {
    const int warp = row_tile / 2 * kColumnWarps + column / kColumns;
    return offset(warp, row_tile % 2, column % kColumns);
  }
};

}  // namespace flashcore::cuda::backward_sm80::general
