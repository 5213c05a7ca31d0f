// The end of a unit: the results of the rings' warps become the unit's partial result in memory.
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/output.cuh"
#include "cuda/decode_sm80/split_kv/attend.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {

template <int kRings>
struct RingRows {
  float largest[kRings][kTileRows], sum[kRings][kTileRows];
};

using attention::decode::weight_of;

// Writes a warp's outputs to `o`, the ring's 16 rows of V's head dimension.
template <Config kConfig>
__device__ __forceinline__ void store_warp(const Accumulators<kConfig>& w, float* o, int lane) {
#pragma unroll
  for (int n = 0; n < kConfig.warp_columns() / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + 8 * (e / 2);
      o[row * kConfig.head_dim_v + output_column<kConfig>(n, e % 2, lane)] = w.o[n][e] * w.unit;
    }
  }
}

// Adds up all outputs, which replace the rings, consecutively,
// in order of rings, so that the bits do not depend on timing.
template <Config kConfig>
__device__ __forceinline__ void store_unit(const Params& p, const Unit& unit, const float* o,
                                           const RingRows<kConfig.rings()>& rows) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first = int64_t{unit.index} * p.unit_rows;
#pragma unroll 1
  for (int row = 0; row < unit.rows; ++row) {
    float largest = kNoKey, sum = 0, weight[kConfig.rings()];
#pragma unroll
    for (int w = 0; w < kConfig.rings(); ++w) largest = fmaxf(largest, rows.largest[w][row]);
#pragma unroll
    for (int w = 0; w < kConfig.rings(); ++w) {
      weight[w] = weight_of(rows.largest[w][row], largest);
      sum += weight[w] * rows.sum[w][row];
    }
    if (thread == 0) p.partial_rows[first + row] = make_float2(largest, sum);
#pragma unroll 1
    for (int column = thread; column < p.head_dim_v; column += kConfig.threads()) {
      float x = 0;
#pragma unroll
      for (int w = 0; w < kConfig.rings(); ++w) {
        x = attention::with_part(x, weight[w],
                                 o[(w * kTileRows + row) * kConfig.head_dim_v + column]);
      }
      p.partial_o[(first + row) * p.head_dim_v + column] = x;
    }
  }
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
