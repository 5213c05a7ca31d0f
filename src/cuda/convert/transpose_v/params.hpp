// Everything that a launch of V's transposition is told. Strides are in elements, which are bytes.
#pragma once

#include <cstdint>

#include "cuda/attention/inputs.hpp"

namespace flashcore::cuda::convert::transpose_v {

inline constexpr int kThreads = 256;

struct Params {
  const uint8_t* v;
  uint8_t* out;
  attention::RowStride v_at, out_at;  // out_at.row is between dimensions
  int heads, rows, head_dim;
  uint32_t column_blocks, dim_blocks;  // of a head
  uint32_t blocks;                     // of all heads
  bool in_chunks, out_chunks;          // rows are aligned chunks of 16 bytes
};

}  // namespace flashcore::cuda::convert::transpose_v
