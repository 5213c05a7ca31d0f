// Computes O, LSE and largest values of rows key by key from
// global memory, one warp per row: exact_rows.cuh with options.
#pragma once

#include <cstdint>

#include "cuda/forward_fp8_sm90/throughput/exact_rows.cuh"
#include "cuda/forward_fp8_sm90/throughput/option_cap.cuh"
#include "cuda/forward_fp8_sm90/throughput/option_task.hpp"
#include "cuda/ptx/e5m2.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// e5m2 is the upper half of fp16.
template <bool kE5M2>
__device__ __forceinline__ float element(uint8_t bits) {
  if constexpr (kE5M2) return ptx::f16_to_float(static_cast<uint16_t>(bits << 8));
  return to_float(bits);
}

__device__ __forceinline__ int64_t output_place(const OptionParams& p, const OptionTask& task,
                                                int row) {
  const int64_t place = static_cast<int64_t>(task.q_row) + task.first_query + row;
  return (p.packed ? 0 : task.batch * p.o_batch) + task.head * p.o_head + place * p.o_row +
         task.column;
}
__device__ __forceinline__ float* lse_place(const OptionParams& p, const OptionTask& task,
                                            int row) {
  const int64_t place = static_cast<int64_t>(task.q_row) + task.first_query + row;
  return p.lse + (p.packed ? 0 : task.batch * p.lse_batch) + task.head * p.lse_head +
         place * p.lse_row;
}
__device__ __forceinline__ const uint8_t* packed_row_pointer(const OptionParams& p,
                                                             const attention::RowMatrix& m,
                                                             int batch, int head, int row) {
  return static_cast<const uint8_t*>(m.data) + (p.packed ? 0 : batch * m.batch) + head * m.head +
         row * m.row;
}

// Packs two outputs as fp8, the first in bits 0..7.
__device__ __forceinline__ uint32_t pack_fp8x2(OutputType type, float first, float second) {
  return type == OutputType::e5m2 ? ptx::pack_e5m2x2(first, second)
                                  : ptx::pack_e4m3x4(first, second, 0, 0) & 0xffffU;
}
__device__ __forceinline__ bool is_fp8(OutputType type) {
  return type == OutputType::e4m3 || type == OutputType::e5m2;
}

// Returns the magnitude's bits, which compare like the numbers, with NaN, in one form, as the largest.
__device__ __forceinline__ uint32_t magnitude_bits(float x) {
  const uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFU;
  return bits > 0x7F800000U ? 0x7FFFFFFFU : bits;
}
__device__ __forceinline__ uint32_t warp_max_bits(uint32_t x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = max(x, __shfl_xor_sync(0xffffffffU, x, d));
  return x;
}
// Called by all lanes, each with its own largest value.
__device__ __forceinline__ void raise(const LargestValues& values, const OptionTask& task,
                                      uint32_t bits, int lane) {
  if (values.data == nullptr) return;
  bits = warp_max_bits(bits);
  if (lane == 0 && bits != 0) atomicMax(values.at(task.batch, task.head), bits);
}

// Computes rows first_row .. + 15 of the tile, and the tile's part of V's columns.
template <bool kE5M2, int kWidth>
__device__ __forceinline__ void compute_option_rows(const OptionParams& p, const OptionTask& task,
                                                    int first_row, int lane) {
  __syncwarp();                          // other lanes have stored what they had
  constexpr int kColumns = kWidth / 32;  // per lane, 32 apart
  const float to_natural = score_scale(p, task, 1), unit = value_scale(p, task);
  const bool caps = p.softcap > 0 && isfinite(to_natural);
  const attention::SoftcapParams cap = softcap_of(caps ? p.softcap : 1.0F, to_natural);
  const int columns = min(kWidth, p.head_dim_v - task.column);
  uint32_t most_o = 0, most_s = 0;
#pragma unroll 1
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = first_row + i;
    const int query = task.first_query + row;
    if (ptx::uniform(query < task.rows_q) == 0) break;
    const int begin = static_cast<int>(ptx::uniform(max(0, query + task.limits.low)));
    const int end = static_cast<int>(ptx::uniform(
        query < task.len_q ? min(task.limits.len_kv, query + task.limits.high + 1) : begin));
    const uint8_t* const q = packed_row_pointer(p, p.q, task.batch, task.head, task.q_row + query);
    float largest = attention::kNoKey, sum = 0;
    float o[kColumns] = {}, not_finite[kColumns] = {};
#pragma unroll 1
    for (int first = begin; first < end; first += 32) {
      const int key = first + lane;
      float score = attention::kNoKey;
      if (key < end) {
        const uint8_t* const k =
            packed_row_pointer(p, p.k, task.batch, task.kv_head, task.kv_row + key);
        float dot = 0;
#pragma unroll 4
        for (int d = 0; d < p.head_dim_qk; ++d) {
          dot = fmaf(element<kE5M2>(q[d]), element<kE5M2>(k[d]), dot);
        }
        score = caps ? attention::capped_log2(dot, cap) * attention::kLn2 : dot * to_natural;
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
        const uint8_t* const v =
            packed_row_pointer(p, p.v, task.batch, task.kv_head, task.kv_row + first + j) +
            task.column;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (lane + 32 * c >= columns) continue;
          const float value = element<kE5M2>(v[lane + 32 * c]) * unit;
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
    if (p.lse != nullptr && task.column == 0) {
      *lse_place(p, task, row) = sum == 0 ? sink : top + __log2f(all) * attention::kLn2;
    }
    if (sum != 0) most_s = max(most_s, magnitude_bits(__fdividef(factor, all)));
    const int64_t place = output_place(p, task, row);
    const float o_scale = p.o_scale.at(task.batch, task.head);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + 32 * c;
      if (column >= columns) continue;
      const float value = sum == 0 ? 0.0F : __fdividef(o[c] * factor, all) + not_finite[c];
      most_o = max(most_o, magnitude_bits(value));
      if (is_fp8(p.output)) {
        const uint32_t pair = pack_fp8x2(p.output, value / o_scale, 0);
        static_cast<uint8_t*>(p.o)[place + column] = static_cast<uint8_t>(pair);
      } else {
        store_output(p, place + column, value);
      }
    }
  }
  raise(p.amax_o, task, most_o, lane);
  if (task.column == 0) raise(p.amax_s, task, most_s, lane);
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
