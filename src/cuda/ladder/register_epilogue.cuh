// The last step of the rungs whose rows are held in quads
// (12 to 15): normalises O, and stores it and the LSE.
//
// A warp writes its 16 rows to a staging tile in shared memory and reads them back, 16 bytes per
// lane, so that global stores are whole rows.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/ladder/quad_rows.cuh"
#include "cuda/ladder/tile_place.cuh"
#include "cuda/ladder/value_guard.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::ladder {

// The order of two neighbouring outputs in the accumulators o[n][e] of a lane with t = lane % 4.
enum class Columns {
  natural,     // o[n][e]: column 8n + 2t + e
  interleaved  // o[2m][e], o[2m + 1][e]: columns 16m + 4t + 2e and + 1 (14_fp8_native)
};

struct Finish {
  float factor = 1;           // of every output: the scale of V
  float lse_shift = 0;        // log2 of the factor in the exponentials
  int repair_from = INT_MAX;  // NaN and Inf were removed from keys from here on (value_guard)
};

// Staging::offset(row, column) is the byte offset of a half; 16-byte chunks of a row are contiguous.
template <class Staging, class Values, Columns kColumns = Columns::natural, int kProducts>
__device__ __forceinline__ void store_rows(const RungParams& params, const TilePlace& place,
                                           unsigned char* staging, int warp_row, int lane,
                                           const float (&o)[kProducts][4], const QuadRows& rows,
                                           const Finish& finish) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int tile_row = warp_row + lane / 4 + 8 * slot, row = place.first_row + tile_row;
    const float sum = attention::quad_sum(rows.sum[slot]);
    const float factor = inverse_or_zero(sum) * finish.factor;
    if (params.lse != nullptr && lane % 4 == 0 && row < params.seqlen_q) {
      params.lse[place.at(params.lse_stride, row)] =
          log_sum_exp(rows.max[slot] - finish.lse_shift, sum);
    }
#pragma unroll
    for (int n = 0; n < kProducts; ++n) {
      int column = 8 * n + 2 * (lane % 4);
      float left = o[n][2 * slot], right = o[n][2 * slot + 1];
      if constexpr (kColumns == Columns::interleaved) {
        const int m = n / 2, e = n % 2;
        column = 16 * m + 4 * (lane % 4) + 2 * e;
        left = o[2 * m][2 * slot + e], right = o[2 * m + 1][2 * slot + e];
      }
      *reinterpret_cast<uint32_t*>(staging + Staging::offset(tile_row, column)) =
          ptx::pack_f16x2(left * factor, right * factor);
    }
  }
  __syncwarp();
#pragma unroll 1
  for (int i = lane; i < 16 * kProducts; i += kWarpSize) {
    const int tile_row = warp_row + i / kProducts, column = i % kProducts * 8;
    const int row = place.first_row + tile_row;
    if (row >= params.seqlen_q) break;
    uint4 halves = *reinterpret_cast<const uint4*>(staging + Staging::offset(tile_row, column));
    const int visible = visible_keys(params, row);
    if (finish.repair_from < visible) {
      const auto* v = static_cast<const typename Values::Element*>(params.v) +
                      place.at(params.v_stride, 0) + column;
      halves = add_visible_nonfinite<Values>(halves, v, params.v_stride.row, finish.repair_from,
                                             visible);
    }
    auto* o_row = static_cast<__half*>(params.o) + place.at(params.o_stride, row);
    *reinterpret_cast<uint4*>(o_row + column) = halves;
  }
}

}  // namespace flashcore::cuda::ladder
