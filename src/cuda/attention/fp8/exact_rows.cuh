// Computes O, LSE and largest values of rows key by key from global memory, one warp per row: if
// an output is not finite although its row's sum is, if the products cannot handle
// a row's reference or the tile's scale, and for tensors at unaligned addresses.
//
// The largest score is subtracted before scaling, which is exact for all scores that
// count. A row reads only the keys that it sees, and a NaN value is added unscaled.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/cap.cuh"
#include "cuda/attention/fp8/params.hpp"
#include "cuda/attention/fp8/task.hpp"
#include "cuda/attention/softmax.cuh"
#include "cuda/ptx/e5m2.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/registers.cuh"
#include "problem/transposed.hpp"

namespace flashcore::cuda::attention::fp8 {

__device__ inline const uint8_t* row_pointer(const RowMatrix& m, int batch, int head, int row) {
  return static_cast<const uint8_t*>(m.data) + batch * m.batch + head * m.head + row * m.row;
}

// e5m2 is the upper half of fp16.
template <bool kE5M2>
__device__ __forceinline__ float element(uint8_t bits) {
  if constexpr (kE5M2) return ptx::f16_to_float(static_cast<uint16_t>(bits << 8));
  return ptx::f16_to_float(static_cast<uint16_t>(ptx::e4m3x2_to_f16x2(bits)));
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
  return p.sinks == nullptr ? kNoKey : p.sinks[head * p.sinks_step];
}

// Where a tile's sequence lies in the tensors, and which of V's columns the tile has.
struct TilePlace {
  int batch;          // in strides
  int q_row, kv_row;  // of query 0 and key 0
  int column;         // the first
};
__device__ __forceinline__ TilePlace place_of(const Params& /*p*/, const Task& task) {
  return {task.batch, 0, 0, 0};
}
__device__ __forceinline__ TilePlace place_of(const OptionParams& p, const OptionTask& task) {
  return {p.packed ? 0 : task.batch, task.q_row, task.kv_row, task.column};
}

template <class P, class T>
__device__ __forceinline__ int64_t output_place(const P& p, const T& task, int row) {
  const TilePlace at = place_of(p, task);
  return at.batch * p.o_batch + task.head * p.o_head +
         (static_cast<int64_t>(at.q_row) + task.first_query + row) * p.o_row + at.column;
}
template <class P, class T>
__device__ __forceinline__ float* lse_place(const P& p, const T& task, int row) {
  const TilePlace at = place_of(p, task);
  return p.lse + at.batch * p.lse_batch + task.head * p.lse_head +
         (static_cast<int64_t>(at.q_row) + task.first_query + row) * p.lse_row;
}

// Packs two outputs as fp8, the first in bits 0..7.
__device__ __forceinline__ uint32_t pack_fp8x2(ElementType type, float first, float second) {
  return type == ElementType::e5m2 ? ptx::pack_e5m2x2(first, second)
                                   : ptx::pack_e4m3x4(first, second, 0, 0) & 0xffffU;
}
__device__ __forceinline__ bool is_fp8(ElementType type) {
  return type == ElementType::e4m3 || type == ElementType::e5m2;
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

__device__ __forceinline__ void store_output(const Params& p, int64_t place, float value) {
  if (p.output == ElementType::f32) {
    static_cast<float*>(p.o)[place] = value;
  } else {
    const uint32_t pair =
        p.output == ElementType::f16 ? ptx::pack_f16x2(value, 0) : ptx::pack_bf16x2(value, 0);
    static_cast<uint16_t*>(p.o)[place] = static_cast<uint16_t>(pair);
  }
}

// Returns element 0 of V's row `key`; kVTransposed: V is stored transposed, and that row is a column.
template <bool kVTransposed>
__device__ __forceinline__ const uint8_t* value_pointer(const Params& p, const TilePlace& at,
                                                        int kv_head, int key) {
  if constexpr (kVTransposed) {
    return row_pointer(p.v, at.batch, kv_head, 0) + column_of_key(key);
  } else {
    return row_pointer(p.v, at.batch, kv_head, at.kv_row + key) + at.column;
  }
}
template <bool kVTransposed>
__device__ __forceinline__ uint8_t value_at(const Params& p, const uint8_t* v, int d) {
  if constexpr (kVTransposed) return v[d * p.v.row];
  return v[d];
}

// Turns a product of stored elements into a score.
template <class S>
struct ScoreOf {
  float to_natural;
  bool caps = false;
  SoftcapParams cap;

  __device__ __forceinline__ ScoreOf(const typename S::Params& p, const typename S::Task& task)
      : to_natural(score_scale(p, task, 1)) {
    if constexpr (S::kOptions) {
      caps = p.softcap > 0 && isfinite(to_natural);
      cap = softcap_of(caps ? p.softcap : 1.0F, to_natural);
    }
  }
  __device__ __forceinline__ float operator()(float dot) const {
    if constexpr (S::kOptions) {
      if (caps) return capped_log2(dot, cap) * kLn2;
    }
    return dot * to_natural;
  }
};

// Computes rows first_row .. + 15 of the tile. Inlined, and with loop bounds known to be uniform:
// a call, or a loop that lanes may leave one by one, would cost a main loop its uniform registers.
template <class S>
__device__ __forceinline__ void compute_rows_exactly(const typename S::Params& p,
                                                     const typename S::Task& task, int first_row,
                                                     int lane) {
  __syncwarp();  // other lanes have stored what they had
  constexpr int kWidth = S::kHeadDimV, kColumns = kWidth / 32;  // per lane, 32 apart
  const TilePlace at = place_of(p, task);
  const typename S::ScoreOf score_of(p, task);
  const float unit = value_scale(p, task);
  const int head_dim = S::kOptions ? p.head_dim_qk : S::kHeadDimQk;
  const int columns = S::kOptions ? min(kWidth, p.head_dim_v - at.column) : kWidth;
  [[maybe_unused]] uint32_t most_o = 0, most_s = 0;
#pragma unroll 1
  for (int i = 0; i < kWarpRows; ++i) {
    const int row = first_row + i;
    const int query = task.first_query + row;
    if (ptx::uniform(query < task.rows_q) == 0) break;
    const int begin = static_cast<int>(ptx::uniform(max(0, query + task.limits.low)));
    const int end = static_cast<int>(ptx::uniform(
        query < task.len_q ? min(task.limits.len_kv, query + task.limits.high + 1) : begin));
    const uint8_t* const q = row_pointer(p.q, at.batch, task.head, at.q_row + query);
    float largest = kNoKey, sum = 0;
    float o[kColumns] = {}, not_finite[kColumns] = {};
#pragma unroll 1
    for (int first = begin; first < end; first += 32) {
      const int key = first + lane;
      float score = kNoKey;
      if (key < end) {
        const uint8_t* const k = row_pointer(p.k, at.batch, task.kv_head, at.kv_row + key);
        float dot = 0;
#pragma unroll 4
        for (int d = 0; d < head_dim; ++d) {
          dot = fmaf(element<S::kE5M2>(q[d]), element<S::kE5M2>(k[d]), dot);
        }
        score = score_of(dot);
      }
      const float raised = fmaxf(largest, warp_max(score));
      const float reference = finite_reference(raised);
      const float rescale = ptx::exp2_approx((largest - reference) * kLog2E);
      const float weight = key < end ? ptx::exp2_approx((score - reference) * kLog2E) : 0.0F;
      largest = raised;
      sum = sum * rescale + weight;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o[c] *= rescale;
#pragma unroll 1
      for (int j = 0; j < min(32, end - first); ++j) {
        const float w = __shfl_sync(0xffffffffU, weight, j);
        const uint8_t* const v = value_pointer<S::kVTransposed>(p, at, task.kv_head, first + j);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (S::kOptions && lane + 32 * c >= columns) continue;
          const float value =
              element<S::kE5M2>(value_at<S::kVTransposed>(p, v, lane + 32 * c)) * unit;
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
    const float top = fmaxf(largest, sink), reference = finite_reference(top);
    const float factor = ptx::exp2_approx((largest - reference) * kLog2E);
    const float all =
        sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx((sink - top) * kLog2E));
    if (p.lse != nullptr && at.column == 0) {
      *lse_place(p, task, row) = sum == 0 ? sink : top + __log2f(all) * kLn2;
    }
    if constexpr (S::kOptions) {
      if (sum != 0) most_s = max(most_s, magnitude_bits(__fdividef(factor, all)));
    }
    const int64_t place = output_place(p, task, row);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + 32 * c;
      if (S::kOptions && column >= columns) continue;
      const float value = sum == 0 ? 0.0F : __fdividef(o[c] * factor, all) + not_finite[c];
      if constexpr (S::kOptions) {
        most_o = max(most_o, magnitude_bits(value));
        if (is_fp8(p.output)) {
          const float scaled = value / p.o_scale.at(task.batch, task.head);
          const uint32_t pair = pack_fp8x2(p.output, scaled, 0);
          static_cast<uint8_t*>(p.o)[place + column] = static_cast<uint8_t>(pair);
          continue;
        }
      }
      store_output(p, place + column, value);
    }
  }
  if constexpr (S::kOptions) {
    raise(p.amax_o, task, most_o, lane);
    if (at.column == 0) raise(p.amax_s, task, most_s, lane);
  }
}

}  // namespace flashcore::cuda::attention::fp8
