// The query tile of a block of the register-resident rungs (12 to 15), and the keys its rows see.
//
// O and S fill the registers of rungs 12 and 14, so a block's description of
// its work is in shared memory (BlockWork) and is read again for each use.
#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/ladder/rung_common.cuh"

namespace flashcore::cuda::ladder {

struct TilePlace {
  int batch, head, first_row;

  // Returns the offset in elements of row `row` of this (batch, head) in the tensor.
  __device__ int64_t at(const Strides& stride, int row) const {
    return batch * stride.batch + head * stride.head + row * stride.row;
  }

  // The scale of an fp8 tensor.
  __device__ float scale(const float* scales, const int64_t (&stride)[2]) const {
    return scales[batch * stride[0] + head * stride[1]];
  }
};

// Longest query tiles first: under a causal mask, the last ones see
// the most keys. The launch keeps the number of blocks within an int.
__device__ __forceinline__ TilePlace longest_first_place(const RungParams& params, int block_q) {
  const unsigned heads = static_cast<unsigned>(params.heads);
  const unsigned batch_heads = static_cast<unsigned>(params.batch) * heads;
  const unsigned q_tile = blockIdx.x / batch_heads, batch_head = blockIdx.x % batch_heads;
  const int last_tile = ceil_div(params.seqlen_q, block_q) - 1;
  return {static_cast<int>(batch_head / heads), static_cast<int>(batch_head % heads),
          (last_tile - static_cast<int>(q_tile)) * block_q};
}

// The key tiles of a query tile, left to right: all rows see the first `whole`; a
// mask or the end of the keys cuts the others. No row sees keys from kv_end on.
struct KeyTiles {
  int kv_end, whole, count;
};

__device__ __forceinline__ KeyTiles key_tiles(const RungParams& params, int first_row, int block_q,
                                              int block_kv) {
  const int last_row = min(first_row + block_q, params.seqlen_q) - 1;
  const int kv_end = visible_keys(params, last_row);
  return {kv_end, visible_keys(params, first_row) / block_kv, ceil_div(kv_end, block_kv)};
}

// |softmax_scale * factor| in units of log2; a negative sign has been moved
// into Q. Never 0, since a removed score is -inf and -inf * 0 would be NaN.
__device__ __forceinline__ float positive_scale_log2(const RungParams& params, float factor = 1) {
  return fmaxf(fabsf(params.softmax_scale * factor) * kLog2E, FLT_MIN);
}

struct BlockWork {
  TilePlace place;
  KeyTiles tiles;
  const void *q, *k, *v;  // row 0 of this (batch, head)
  float scale_log2;  // of raw scores, not negative: `flip_q` tells whether Q's signs are flipped
  bool flip_q;
  bool repair;  // NaN or Inf was removed from a masked tile
};

// Called by one thread; a barrier must follow. score_factor: the scales of fp8 Q and K.
template <class Element>
__device__ __forceinline__ void set_block_work(BlockWork& work, const RungParams& params,
                                               int block_q, int block_kv, float score_factor = 1) {
  const TilePlace place = longest_first_place(params, block_q);
  const auto head_of = [&](const void* tensor, const Strides& stride) {
    return static_cast<const Element*>(tensor) + place.at(stride, 0);
  };
  work.place = place;
  work.tiles = key_tiles(params, place.first_row, block_q, block_kv);
  work.q = head_of(params.q, params.q_stride);
  work.k = head_of(params.k, params.k_stride);
  work.v = head_of(params.v, params.v_stride);
  work.scale_log2 = positive_scale_log2(params, score_factor);
  work.flip_q = params.softmax_scale * score_factor < 0;
  work.repair = false;
}

}  // namespace flashcore::cuda::ladder
