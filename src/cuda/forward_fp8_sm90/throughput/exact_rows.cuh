// Computes O and LSE of rows key by key from global memory, one warp per row: if
// an output is not finite although its row's sum is, if the products cannot handle
// a row's reference or the tile's scale, and for tensors at unaligned addresses.
//
// The largest score is subtracted before scaling, which is exact for all scores that
// count. A row reads only the keys that it sees, and a NaN value is added unscaled.
#pragma once

#include <cstdint>

#include "cuda/attention/softmax.cuh"
#include "cuda/forward_fp8_sm90/throughput/params.hpp"
#include "cuda/forward_fp8_sm90/throughput/task.hpp"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/registers.cuh"
#include "problem/transposed.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

__device__ inline const uint8_t* row_pointer(const attention::RowMatrix& m, int batch, int head,
                                             int row) {
  return static_cast<const uint8_t*>(m.data) + batch * m.batch + head * m.head + row * m.row;
}

__device__ inline float to_float(uint8_t e4m3) {
  return ptx::f16_to_float(static_cast<uint16_t>(ptx::e4m3x2_to_f16x2(e4m3)));
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, d));
  return x;
}
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffU, x, d);
  return x;
}

// Factor from products of stored elements to scores, in units of log2 if `unit` is log2(e).
__device__ __forceinline__ float score_scale(const Params& p, const Task& task, float unit) {
  return p.softmax_scale * unit * p.q_scale.at(task.batch, task.head) *
         p.k_scale.at(task.batch, task.kv_head);
}
__device__ __forceinline__ float value_scale(const Params& p, const Task& task) {
  return p.v_scale.at(task.batch, task.kv_head);
}

// Returns the head's sink, or kNoKey.
__device__ __forceinline__ float sink_of(const Params& p, int head) {
  return p.sinks == nullptr ? attention::kNoKey : p.sinks[head * p.sinks_step];
}

__device__ __forceinline__ int64_t output_place(const Params& p, const Task& task, int row) {
  return task.batch * p.o_batch + task.head * p.o_head +
         (static_cast<int64_t>(task.first_query) + row) * p.o_row;
}
__device__ __forceinline__ float* lse_place(const Params& p, const Task& task, int row) {
  return p.lse + task.batch * p.lse_batch + task.head * p.lse_head +
         (static_cast<int64_t>(task.first_query) + row) * p.lse_row;
}

__device__ __forceinline__ void store_output(const Params& p, int64_t place, float value) {
  if (p.output == OutputType::f32) {
    static_cast<float*>(p.o)[place] = value;
  } else {
    const uint32_t pair =
        p.output == OutputType::f16 ? ptx::pack_f16x2(value, 0) : ptx::pack_bf16x2(value, 0);
    static_cast<uint16_t*>(p.o)[place] = static_cast<uint16_t>(pair);
  }
}

// Returns element 0 of V's row `key`; kVTransposed: V is stored transposed, and that row is a column.
template <bool kVTransposed>
__device__ __forceinline__ const uint8_t* value_pointer(const Params& p, const Task& task,
                                                        int key) {
  if constexpr (kVTransposed) {
    return row_pointer(p.v, task.batch, task.kv_head, 0) + column_of_key(key);
  } else {
    return row_pointer(p.v, task.batch, task.kv_head, key);
  }
}
template <bool kVTransposed>
__device__ __forceinline__ uint8_t value_at(const Params& p, const uint8_t* v, int d) {
  if constexpr (kVTransposed) return v[d * p.v.row];
  return v[d];
}

// Computes rows first_row .. + 15 of the tile. Inlined, and with loop bounds known to be uniform:
// a call, or a loop that lanes may leave one by one, would cost a main loop its uniform registers.
template <int kHeadDim, bool kVTransposed = false>
__device__ __forceinline__ void compute_rows_exactly(const Params& p, const Task& task,
                                                     int first_row, int lane) {
  __syncwarp();                            // other lanes have stored what they had
  constexpr int kColumns = kHeadDim / 32;  // per lane, 32 apart
  const float to_natural = score_scale(p, task, 1);
  const float unit = value_scale(p, task);
#pragma unroll 1
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = first_row + i;
    const int query = task.first_query + row;
    if (ptx::uniform(query < task.rows_q) == 0) break;
    const int begin = static_cast<int>(ptx::uniform(max(0, query + task.limits.low)));
    const int end = static_cast<int>(ptx::uniform(
        query < task.len_q ? min(task.limits.len_kv, query + task.limits.high + 1) : begin));
    const uint8_t* const q = row_pointer(p.q, task.batch, task.head, query);
    float largest = attention::kNoKey, sum = 0;
    float o[kColumns] = {}, not_finite[kColumns] = {};
#pragma unroll 1
    for (int first = begin; first < end; first += 32) {
      const int key = first + lane;
      float score = attention::kNoKey;
      if (key < end) {
        const uint8_t* const k = row_pointer(p.k, task.batch, task.kv_head, key);
        float dot = 0;
#pragma unroll 4
        for (int d = 0; d < kHeadDim; ++d) dot = fmaf(to_float(q[d]), to_float(k[d]), dot);
        score = dot * to_natural;
      }
      const float raised = fmaxf(largest, warp_max(score));
      const float reference = attention::finite_reference(raised);
      const float rescale = ptx::exp2_approx((largest - reference) * attention::kLog2E);
      const float weight =
          key < end ? ptx::exp2_approx((score - reference) * attention::kLog2E) : 0.0F;
      largest = raised;
      sum = sum * rescale + weight;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o[c] *= rescale;
#pragma unroll 1
      for (int j = 0; j < min(32, end - first); ++j) {
        const float w = __shfl_sync(0xffffffffU, weight, j);
        const uint8_t* const v = value_pointer<kVTransposed>(p, task, first + j);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const float value = to_float(value_at<kVTransposed>(p, v, lane + 32 * c)) * unit;
          if (isfinite(value)) {
            o[c] = fmaf(w, value, o[c]);
          } else {
            not_finite[c] += value;
          }
        }
      }
    }
    sum = warp_sum(sum);
    const float sink = sink_of(p, task.head);
    const float top = fmaxf(largest, sink), reference = attention::finite_reference(top);
    const float factor = ptx::exp2_approx((largest - reference) * attention::kLog2E);
    const float all =
        sum * factor +
        (sink == attention::kNoKey ? 0.0F : ptx::exp2_approx((sink - top) * attention::kLog2E));
    if (p.lse != nullptr)
      *lse_place(p, task, row) = sum == 0 ? sink : top + __log2f(all) * attention::kLn2;
    const int64_t place = output_place(p, task, row);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float value = sum == 0 ? 0.0F : __fdividef(o[c] * factor, all) + not_finite[c];
      store_output(p, place + lane + 32 * c, value);
    }
  }
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
