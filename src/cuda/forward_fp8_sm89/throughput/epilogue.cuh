// Turns a warp's rows into O and LSE.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/exact_rows.cuh"
#include "cuda/attention/fp8/row_end.cuh"
#include "cuda/attention/large_reference.hpp"
#include "cuda/forward_fp8_sm89/throughput/attend.cuh"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

// Stores a row's four neighbouring columns.
__device__ __forceinline__ void store_four(const Params& p, int64_t place, float a, float b,
                                           float c, float d) {
  if (p.output == ElementType::f32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.o) + place) = make_float4(a, b, c, d);
    return;
  }
  const bool f16 = p.output == ElementType::f16;
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.o) + place) =
      make_uint2(f16 ? ptx::pack_f16x2(a, b) : ptx::pack_bf16x2(a, b),
                 f16 ? ptx::pack_f16x2(c, d) : ptx::pack_bf16x2(c, d));
}

// Normalises and stores one row of each lane, the row `slot`: a lane has four
// neighbouring columns of every 16. Returns false if the result is wrong: an output is
// not finite although its row's sum is not NaN, or the row's reference is too large.
template <class S>
__device__ __forceinline__ bool store_row(const Params& p, const Task& task, const Rows<S>& rows,
                                          int slot, int query, int lane) {
  const float sum = attention::quad_sum(rows.sum[slot]);
  if (query >= task.rows_q) return true;
  const float sink = sink_of(p, task.head), reference = rows.reference[slot];
  const attention::ColumnRange seen = seen_keys(task, query);
  const bool empty = seen.end <= seen.begin;
  const RowEnd end =
      end_row(sum, rows.rounded[slot], reference, sink, value_scale(p, task), !empty);
  if (p.lse != nullptr && lane % 4 == 0) *lse_place(p, task, query - task.first_query) = end.lse;
  const int64_t place = output_place(p, task, query - task.first_query) + 4 * (lane % 4);
  float zero = 0;
#pragma unroll
  for (int d16 = 0; d16 < S::kOutProducts / 2; ++d16) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = rows.o[2 * d16 + i % 2][2 * slot + i / 2] * end.factor;
      x[i] = empty ? 0.0F : value;
      zero = fmaf(x[i], 0.0F, zero);
    }
    if (16 * d16 < p.head_dim_v) store_four(p, place + 16 * d16, x[0], x[1], x[2], x[3]);
  }
  const bool finite = zero == 0 || end.factor != end.factor;
  // A row whose sink is +inf or NaN is recomputed, too.
  return empty || (finite && fabsf(reference) < attention::kLargestReference && sink < -kNoKey);
}

template <class S>
__device__ __forceinline__ void store_rows(const Params& p, const Task& task, const Rows<S>& rows) {
  const int lane = lane_index(), first = task.first_query + warp_row();
  bool right = true;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    right = store_row<S>(p, task, rows, slot, first + lane / 4 + 8 * slot, lane) && right;
  }
  if (__all_sync(0xffffffffU, right)) return;
  compute_rows_exactly<S>(p, task, warp_row(), lane);
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
