// Turns a consumer's accumulators into O and LSE.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/large_reference.hpp"
#include "cuda/forward_fp8_sm90/throughput/consumer.cuh"
#include "cuda/forward_fp8_sm90/throughput/exact_rows.cuh"
#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// The end of one of a lane's two rows: O *= factor.
struct RowEnd {
  float factor, lse;
};

// `sum`: of P over the whole row; `rounded`: the products' sum of the rounded P; `unit`: the scale of V. O is
// relative to the second, so that an error common to all probabilities cancels; the LSE uses the first. If
// the sink outweighs everything else, the LSE is the sink: in units of log2, the largest sinks overflow fp32.
__device__ __forceinline__ RowEnd end_row(float sum, float rounded, float reference, float sink,
                                          float unit, bool in_use) {
  RowEnd end{0, sink};
  if (!in_use || sum == 0) return end;  // empty; a NaN sum is not
  const float sink_log2 = fminf(sink * kLog2E, std::numeric_limits<float>::max());
  const float top = fmaxf(reference, sink_log2);
  const float factor = ptx::exp2_approx(reference - top);
  const float all = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink_log2 - top));
  end.factor = __fdividef(sum * factor, all) / rounded * unit;
  if (factor != 0) end.lse = (top + __log2f(all)) * kLn2;
  return end;
}

// Completes the sums of each lane's two rows and writes their LSE.
template <class S>
__device__ __forceinline__ void end_rows(const Params& p, Consumer<S>& c, const Task& task,
                                         RowEnd (&ends)[2]) {
  const float sink = sink_of(p, task.head), unit = value_scale(p, task);
  // See large_reference.hpp.
  if (!(sink < -kNoKey)) c.flushed_reference[0] = c.flushed_reference[1] = sink;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = c.row() + 8 * slot;
    const int query = task.first_query + row;
    ends[slot] = end_row(attention::quad_sum(c.flushed_sum[slot]), c.flushed_rounded[slot],
                         c.flushed_reference[slot], sink, unit, query < task.len_q);
    if (p.lse != nullptr && c.lane() % 4 == 0 && query < task.rows_q) {
      *lse_place(p, task, row) = ends[slot].lse;
    }
  }
}

// Stores two columns of a row. A quad has 16 neighbouring columns of 16 bits in
// two products, each lane 2 + 2 of them: lanes 2 i and 2 i + 1 exchange values, so
// that each lane stores four neighbours, and the quad whole sectors of 32 bytes.
//
//   lane      0         1         2         3
//   has       0,1 8,9   2,3 a,b   4,5 c,d   6,7 e,f
//   stores    0 .. 3    8 .. b    4 .. 7    c .. f
__device__ __forceinline__ void store_pair(uint16_t* row, uint32_t first, uint32_t second, bool odd,
                                           int column, bool exists) {
  const uint32_t got = __shfl_xor_sync(0xffffffffU, odd ? first : second, 1);
  if (!exists) return;
  *reinterpret_cast<uint2*>(row + column) = odd ? make_uint2(got, second) : make_uint2(first, got);
}

// Normalises and stores O of this warp's rows. Returns false if the result is wrong: an
// output is not finite although its row's sum is not NaN, or a row's reference is too large.
template <class S>
__device__ __forceinline__ bool store_rows(const Params& p, const Task& task, Consumer<S>& c,
                                           const RowEnd (&ends)[2]) {
  const int lane = c.lane();
  const bool odd = lane % 2 != 0;
  bool right = true;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float factor = ends[slot].factor;
    const int row = c.row() + 8 * slot;
    const bool exists = row < task.rows_q - task.first_query;
    const int64_t place = output_place(p, task, row);
    float zero = 0;
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
#pragma unroll
      for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
        c.o[n][e] *= factor;
        zero = fmaf(c.o[n][e], 0.0F, zero);
      }
    }
    right = right && (zero == 0 || factor != factor) &&
            fabsf(c.flushed_reference[slot]) < attention::kLargestReference;
    if (p.output == OutputType::f32) {
      float* const out = static_cast<float*>(p.o) + place + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        if (exists) {
          *reinterpret_cast<float2*>(out + 8 * n) =
              make_float2(c.o[n][2 * slot], c.o[n][2 * slot + 1]);
        }
      }
      continue;
    }
    uint16_t* const out = static_cast<uint16_t*>(p.o) + place;
    const int column = 2 * (lane % 4) + (odd ? 6 : 0);
    const bool is_f16 = p.output == OutputType::f16;
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 2) {
      uint32_t pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float low = c.o[n + i][2 * slot], high = c.o[n + i][2 * slot + 1];
        pair[i] = is_f16 ? ptx::pack_f16x2(low, high) : ptx::pack_bf16x2(low, high);
      }
      store_pair(out, pair[0], pair[1], odd, 8 * n + column, exists);
    }
  }
  return __all_sync(0xffffffffU, right);
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
