// What the launch that makes rows of a V stored transposed is told.
#pragma once

#include <cstdint>

#include "cuda/attention/forward_params.hpp"

namespace flashcore::cuda::convert::v_rows {

inline constexpr int kThreads = 256;
// Keys of the largest tile of a kernel that reads the rows: none is made so far past those in use.
inline constexpr int kTileRows = 256;

// ForwardParams::v is the caller's V: v.row leads from dimension to dimension.
struct Params : attention::ForwardParams {
  uint8_t* rows;                       // [B, Hkv, Skv, pitch]
  int64_t pitch;                       // a multiple of VTile::kChunk
  uint32_t column_blocks, dim_blocks;  // of a head
  uint32_t blocks;                     // of all heads
  bool in_chunks;                      // V's rows are aligned chunks
};

}  // namespace flashcore::cuda::convert::v_rows
