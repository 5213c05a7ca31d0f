// Which query tile a block of the register-resident rungs (12 to 15) owns, and what its rows see.
//
// Only small integers stay in registers between the first load and the last store: O and S take the
// rest, and an address is made again where it is needed.
#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/ladder/rung_common.cuh"

namespace flashcore::cuda::ladder {

struct TilePlace {
  int batch, head, first_row;

  // Elements from the tensor's start to row `row` of this (batch, head).
  __device__ int64_t at(const Strides& stride, int row) const {
    return batch * stride.batch + head * stride.head + row * stride.row;
  }

  // The scale of an fp8 tensor.
  __device__ float scale(const float* scales, const int64_t (&stride)[2]) const {
    return scales[batch * stride[0] + head * stride[1]];
  }
};

// Longest query tiles first: under a causal mask the last ones see the most keys. The launch keeps
// the number of blocks within an int.
__device__ __forceinline__ TilePlace longest_first_place(const RungParams& params, int block_q) {
  const unsigned heads = static_cast<unsigned>(params.heads);
  const unsigned batch_heads = static_cast<unsigned>(params.batch) * heads;
  const unsigned q_tile = blockIdx.x / batch_heads, batch_head = blockIdx.x % batch_heads;
  const int last_tile = ceil_div(params.seqlen_q, block_q) - 1;
  return {static_cast<int>(batch_head / heads), static_cast<int>(batch_head % heads),
          (last_tile - static_cast<int>(q_tile)) * block_q};
}

// The key tiles of a query tile, left to right: the first `whole` are seen by all its rows, a mask
// or the end of the keys cuts the others. Keys from kv_end on are seen by none.
struct KeyTiles {
  int kv_end, whole, count;
};

__device__ __forceinline__ KeyTiles key_tiles(const RungParams& params, int first_row, int block_q,
                                              int block_kv) {
  const int last_row = min(first_row + block_q, params.seqlen_q) - 1;
  const int kv_end = visible_keys(params, last_row);
  return {kv_end, visible_keys(params, first_row) / block_kv, ceil_div(kv_end, block_kv)};
}

// |softmax_scale * factor| in units of log2, a negative sign having moved into Q. Never 0, since a
// removed score is -inf and -inf * 0 would be NaN.
__device__ __forceinline__ float positive_scale_log2(const RungParams& params, float factor = 1) {
  return fmaxf(fabsf(params.softmax_scale * factor) * kLog2e, FLT_MIN);
}

}  // namespace flashcore::cuda::ladder
