// Descriptors of 8-bit operands of wgmma (descriptor.hpp), which are K-major: SmemTiles of one byte
// per element, in panels of 128 or 64 bytes per row. A product is 32 deep, a step of 32 bytes.
#pragma once

#include <cstdint>

#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::tile {

// Byte offset of k32 step `step`, from the address of a tile's first row.
template <class Tile>
constexpr uint32_t byte_step(int step) {
  static_assert(Tile::kElementBytes == 1);
  constexpr int kPanelSteps = Tile::kPanelRowBytes / 32;
  return static_cast<uint32_t>(step / kPanelSteps * Tile::kPanelBytes + step % kPanelSteps * 32);
}

// Returns the descriptor of k32 step 0 of a tile at `tile_address`.
template <class Tile>
constexpr uint64_t byte_descriptor(uint32_t tile_address) {
  static_assert(Tile::kElementBytes == 1);
  return smem_descriptor(
      tile_address, 16, 8 * Tile::kPanelRowBytes,
      Tile::kPanelRowBytes == 128 ? DescriptorSwizzle::span_128 : DescriptorSwizzle::span_64);
}

}  // namespace flashcore::cuda::tile
