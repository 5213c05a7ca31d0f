// The end of a unit: the accumulators of a block's warps become rows of O, or a partial result in memory.
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/output.cuh"
#include "cuda/decode_sm90/stream_kv/attend.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

template <Config kConfig>
struct WarpRows {
  float reference[kWarps][kConfig.rows()], sum[kWarps][kConfig.rows()];
};

// Writes a warp's outputs to `o`, the tile's rows. If products take rounded probabilities, values are weighted
// relative to the rounded sum: a single key has all of the weight, however its probability is rounded.
template <Config kConfig, bool kSumsRounded>
__device__ __forceinline__ void finish(const Accumulators<kConfig>& w, float* o,
                                       WarpRows<kConfig>& rows, int warp, int lane) {
#pragma unroll
  for (int tile = 0; tile < kConfig.row_tiles; ++tile) {
    float unit[2];
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float sum = row_sum(w.sum[tile][slot]);
      unit[slot] = w.unit;
      if constexpr (kSumsRounded) {
        const float rounded = row_sum(w.rounded[tile][slot]);
        unit[slot] = rounded == 0 ? 1 : __fdividef(sum, rounded);
      }
      if (lane >= 4) continue;
      rows.reference[warp][row_in_tile(tile, slot, lane)] = w.reference[tile][slot];
      rows.sum[warp][row_in_tile(tile, slot, lane)] = sum;
    }
#pragma unroll
    for (int i = 0; i < kConfig.head_dim / 16; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        o[row_in_tile(tile, e, lane) * kConfig.output_row() + output_column<kConfig>(i, e, lane)] =
            w.o[i][tile][e] * unit[e % 2];
      }
    }
  }
}

// Adds up all warps' outputs, which are consecutive at `o`, in order of
// warps, so that the bits do not depend on timing. A thread has two columns.
template <Config kConfig>
__device__ __forceinline__ void store_unit(const Params& p, const Unit& unit, const float* o,
                                           const WarpRows<kConfig>& rows) {
  constexpr int kRowThreads = kConfig.head_dim / 2, kRowsAtOnce = kThreads / kRowThreads;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % kRowThreads * 2;
#pragma unroll 1
  for (int row = thread / kRowThreads; row < unit.rows; row += kRowsAtOnce) {
    float largest = kNoKey, sum = 0, x[2] = {0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, rows.reference[w][row]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float weight = attention::decode::weight_of(rows.reference[w][row], largest);
      sum += weight * rows.sum[w][row];
      const auto of_warp = *reinterpret_cast<const float2*>(
          o + (w * kConfig.rows() + row) * kConfig.output_row() + column);
      x[0] = attention::with_part(x[0], weight, of_warp.x);
      x[1] = attention::with_part(x[1], weight, of_warp.y);
    }
    if (unit.slot >= 0) {
      const int64_t at = (int64_t{unit.slot} * p.tiles + blockIdx.x) * p.tile_rows + row;
      if (column == 0) p.partial_rows[at] = make_float2(largest, sum);
      float* const to = p.partial_o + at * p.head_dim_v;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (column + e < p.head_dim_v) to[column + e] = x[e];
      }
      continue;
    }
    const int of_entry = unit.first_row + row;
    const auto query = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(of_entry)));
    const int head = unit.kv_head * p.group + of_entry - query * p.group;
    const int64_t output_row = int64_t{unit.at.entry.q_row} + query;
    const attention::decode::Ending ending = attention::decode::ending_of(p, head, largest, sum);
    const int64_t to = attention::decode::output_at(p, unit.batch, head, output_row) + column;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (column + e >= p.head_dim_v) continue;
      attention::store_element(p.o_type, p.o, to + e, ending.empty ? 0.0F : x[e] * ending.factor);
    }
    if (p.lse != nullptr && column == 0) {
      p.lse[attention::decode::lse_at(p, unit.batch, head, output_row)] = ending.lse;
    }
  }
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
