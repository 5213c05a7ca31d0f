// Computes O and LSE of rows key by key from global memory, one warp per row: if
// an output is not finite although its row's sum is, if the products cannot handle
// a row's reference or the tile's scale, and for tensors at unaligned addresses.
//
// The largest score is subtracted before scaling, which is exact for all scores that
// count. A row reads only the keys that it sees, and a NaN value is added unscaled.
#pragma once

#include <cstdint>

#include "cuda/attention/softcap.hpp"
#include "cuda/attention/softmax.cuh"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"
#include "cuda/forward_fp8_sm89/throughput/shape.cuh"
#include "cuda/forward_fp8_sm89/throughput/task.hpp"
#include "cuda/forward_fp8_sm89/throughput/tile_loader.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

__device__ __forceinline__ float to_float(uint8_t e4m3) {
  return ptx::f16_to_float(static_cast<uint16_t>(ptx::e4m3x2_to_f16x2(e4m3)));
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, d));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
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

// Limits a factor derived from a finite scale to finite values, since 0 times it must be 0.
__device__ __forceinline__ float finite_of(float x, float scale) {
  constexpr auto kLargest = static_cast<float>(attention::softcap::kLargest);
  return isfinite(scale) ? fminf(fmaxf(x, -kLargest), kLargest) : x;
}

// Returns the head's sink, or kNoKey.
__device__ __forceinline__ float sink_of(const Params& p, int head) {
  return p.sinks == nullptr ? kNoKey : p.sinks[head * p.sinks_step];
}

__device__ __forceinline__ int64_t output_place(const Params& p, const Task& task, int query) {
  return task.batch * p.o_batch + task.head * p.o_head + (int64_t{task.q_row} + query) * p.o_row;
}
__device__ __forceinline__ float* lse_place(const Params& p, const Task& task, int query) {
  return p.lse + task.batch * p.lse_batch + task.head * p.lse_head +
         (int64_t{task.q_row} + query) * p.lse_row;
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

// Returns a score in natural units, from the product of stored elements.
__device__ __forceinline__ float natural_score(const Params& p, float product, float scale,
                                               float rate) {
  if (!(p.cap > 0)) return product * scale;
  const float x = product * rate;
  if (fabsf(x) > attention::kCapNear) return p.cap * tanhf(x);
  return product * scale * attention::tanh_ratio(x * x);
}

// Computes queries first .. first + kWarpRows - 1, with rows of at most kHeadDim elements.
template <int kHeadDim>
__device__ __forceinline__ void compute_rows_exactly(const Params& p, const Task& task, int first,
                                                     int lane) {
  __syncwarp();                            // other lanes have stored what they had
  constexpr int kColumns = kHeadDim / 32;  // per lane, 32 apart
  const float scale = score_scale(p, task, 1);
  const float rate = p.cap > 0 ? finite_of(scale / p.cap, scale) : 0.0F;
  const float unit = value_scale(p, task), sink = sink_of(p, task.head);
#pragma unroll 1
  for (int query = first; query < min(first + kWarpRows, task.rows_q); ++query) {
    const attention::ColumnRange seen = seen_keys(task, query);
    const uint8_t* const q = row_pointer(p.q, task.batch, task.head, int64_t{task.q_row} + query);
    float largest = kNoKey, sum = 0;
    float o[kColumns] = {}, not_finite[kColumns] = {};
#pragma unroll 1
    for (int some = seen.begin; some < seen.end; some += 32) {
      const int key = some + lane;
      float score = kNoKey;
      if (key < seen.end) {
        const uint8_t* const k =
            row_pointer(p.k, task.batch, task.kv_head, int64_t{task.kv_row} + key);
        float dot = 0;
#pragma unroll 1
        for (int d = 0; d < p.head_dim_qk; ++d) dot = fmaf(to_float(q[d]), to_float(k[d]), dot);
        score = natural_score(p, dot, scale, rate);
      }
      const float raised = fmaxf(largest, warp_max(score));
      const float reference = attention::finite_reference(raised);
      const float rescale = ptx::exp2_approx((largest - reference) * kLog2E);
      const float weight = key < seen.end ? ptx::exp2_approx((score - reference) * kLog2E) : 0.0F;
      largest = raised;
      sum = sum * rescale + weight;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o[c] *= rescale;
#pragma unroll 1
      for (int j = 0; j < min(32, seen.end - some); ++j) {
        const float w = __shfl_sync(0xffffffffU, weight, j);
        const uint8_t* const v =
            row_pointer(p.v, task.batch, task.kv_head, int64_t{task.kv_row} + some + j);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (lane + 32 * c >= p.head_dim_v) continue;
          const float value = to_float(v[lane + 32 * c]) * unit;
          if (isfinite(value)) {
            o[c] = fmaf(w, value, o[c]);
          } else {
            not_finite[c] += value;
          }
        }
      }
    }
    sum = warp_sum(sum);
    const float top = fmaxf(largest, sink), reference = attention::finite_reference(top);
    const float factor = ptx::exp2_approx((largest - reference) * kLog2E);
    const float all =
        sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx((sink - top) * kLog2E));
    if (p.lse != nullptr) *lse_place(p, task, query) = sum == 0 ? sink : top + __log2f(all) * kLn2;
    const int64_t place = output_place(p, task, query);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (lane + 32 * c >= p.head_dim_v) continue;
      const float value = sum == 0 ? 0.0F : __fdividef(o[c] * factor, all) + not_finite[c];
      store_output(p, place + lane + 32 * c, value);
    }
  }
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
