// Turns a consumer's accumulators into O of any type, and finds the largest values.
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/attention/quotient.cuh"
#include "cuda/forward_fp8_sm90/throughput/epilogue.cuh"
#include "cuda/forward_fp8_sm90/throughput/option_rows.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// The end of one of a lane's two rows; `largest`: the row's largest probability.
struct OptionRowEnd : RowEnd {
  float largest;
};

// Returns the share that a P of 1 has of the denominator, as in end_row.
__device__ __forceinline__ float share_of_one(float sum, float reference, float sink) {
  if (sum == 0) return 0;
  const float sink_log2 = fminf(sink * kLog2E, std::numeric_limits<float>::max());
  const float top = fmaxf(reference, sink_log2);
  const float factor = ptx::exp2_approx(reference - top);
  const float all = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink_log2 - top));
  return __fdividef(factor, all);
}

// Completes the sums of each lane's two rows and writes their LSE, once for all parts of V.
template <class S>
__device__ __forceinline__ void end_option_rows(const OptionParams& p, Consumer<S>& c,
                                                const OptionTask& task, OptionRowEnd (&ends)[2]) {
  const float sink = sink_of(p, task.head), unit = value_scale(p, task);
  // See large_reference.hpp.
  if (!(sink < -kNoKey)) c.flushed_reference[0] = c.flushed_reference[1] = sink;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = c.row() + 8 * slot;
    const int query = task.first_query + row;
    const float sum = attention::quad_sum(c.flushed_sum[slot]);
    const float reference = c.flushed_reference[slot];
    static_cast<RowEnd&>(ends[slot]) =
        end_row(sum, c.flushed_rounded[slot], reference, sink, unit, query < task.len_q);
    ends[slot].largest = 0;
    if (p.amax_s.data != nullptr) {
      const float2 largest = c.largest_scores();
      const float score = attention::quad_max(slot == 0 ? largest.x : largest.y);
      ends[slot].largest = ptx::exp2_approx(score - reference) * share_of_one(sum, reference, sink);
    }
    if (p.lse != nullptr && task.column == 0 && c.lane() % 4 == 0 && query < task.rows_q) {
      *lse_place(p, task, row) = ends[slot].lse;
    }
  }
}

// Exchanges two columns of a row in each of four products, 32 columns of 8 bits, in the low and
// high halves of two words, within a quad, so that each lane stores the 8 columns of one product.
//
//   lane      0            1            2            3
//   has       two columns of each product: 0,1 | 2,3 in a word
//   then      0,1 of lanes 0,2 | of 1,3 | 2,3 of lanes 0,2 | of 1,3
//   stores    product 0    product 1    product 2    product 3
__device__ __forceinline__ uint2 exchange(uint32_t first, uint32_t second, int lane) {
  const bool upper = (lane & 2) != 0, odd = (lane & 1) != 0;
  const uint32_t other = __shfl_xor_sync(0xffffffffU, upper ? first : second, 2);
  const uint32_t low = upper ? other : first, high = upper ? second : other;
  const uint32_t even_product = __byte_perm(low, high, 0x5410);
  const uint32_t odd_product = __byte_perm(low, high, 0x7632);
  const uint32_t got = __shfl_xor_sync(0xffffffffU, odd ? even_product : odd_product, 1);
  const uint32_t left = odd ? got : even_product, right = odd ? odd_product : got;
  return {__byte_perm(left, right, 0x5410), __byte_perm(left, right, 0x7632)};
}

// The position of a tile's row in O, and the number of its columns.
struct RowPlace {
  int64_t place;
  bool exists;
};
template <class S>
__device__ __forceinline__ RowPlace row_place(const OptionParams& p, const OptionTask& task,
                                              const Consumer<S>& c, int slot) {
  const int row = c.row() + 8 * slot;
  return {output_place(p, task, row), row < task.rows_q - task.first_query};
}

// Stores the normalised rows of O, in each type. `columns`: V's in this part.
template <class S, OutputType kType>
__device__ __forceinline__ void store_fp8_rows(const OptionParams& p, const OptionTask& task,
                                               const Consumer<S>& c, const attention::Scale& scale,
                                               int columns) {
  const int lane = c.lane() % 4;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const RowPlace row = row_place(p, task, c, slot);
    auto* const out = static_cast<uint8_t*>(p.o) + row.place + 8 * lane;
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 4) {
      uint32_t pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pair[i] = pack_fp8x2(kType, attention::quotient(c.o[n + i][2 * slot], scale),
                             attention::quotient(c.o[n + i][2 * slot + 1], scale));
      }
      const uint2 bytes = exchange(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16, lane);
      if (row.exists && 8 * (n + lane) < columns) *reinterpret_cast<uint2*>(out + 8 * n) = bytes;
    }
  }
}
template <class S>
__device__ __forceinline__ void store_f32_rows(const OptionParams& p, const OptionTask& task,
                                               const Consumer<S>& c, int columns) {
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const RowPlace row = row_place(p, task, c, slot);
    float* const out = static_cast<float*>(p.o) + row.place + 2 * (c.lane() % 4);
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      if (row.exists && 8 * n < columns) {
        *reinterpret_cast<float2*>(out + 8 * n) =
            make_float2(c.o[n][2 * slot], c.o[n][2 * slot + 1]);
      }
    }
  }
}
template <class S>
__device__ __forceinline__ void store_16_bit_rows(const OptionParams& p, const OptionTask& task,
                                                  const Consumer<S>& c, int columns) {
  const int lane = c.lane();
  const bool odd = lane % 2 != 0, is_f16 = p.output == OutputType::f16;
  const int column = 2 * (lane % 4) + (odd ? 6 : 0);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const RowPlace row = row_place(p, task, c, slot);
    uint16_t* const out = static_cast<uint16_t*>(p.o) + row.place;
#pragma unroll
    for (int n = 0; n < S::kOutProducts; n += 2) {
      uint32_t pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float low = c.o[n + i][2 * slot], high = c.o[n + i][2 * slot + 1];
        pair[i] = is_f16 ? ptx::pack_f16x2(low, high) : ptx::pack_bf16x2(low, high);
      }
      store_pair(out, pair[0], pair[1], odd, 8 * n + column, row.exists && 8 * n < columns);
    }
  }
}

// Returns whether quotient() rounds like an fp32 division, if outputs are not too large.
__device__ __forceinline__ bool divides_well(const attention::Scale& by, float largest) {
  return by.scale >= attention::kSmallestScale && by.scale <= attention::kLargestScale &&
         largest < 0x1p40F;
}

// The result for a lane's rows.
struct RowsFound {
  bool right = true;  // as in store_rows
  uint32_t largest_o = 0, largest_s = 0;
};

// Normalises O in place.
template <class S>
__device__ __forceinline__ RowsFound normalise_rows(const OptionParams& p, const OptionTask& task,
                                                    Consumer<S>& c, const OptionRowEnd (&ends)[2],
                                                    const attention::Scale& scale) {
  RowsFound found;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float factor = ends[slot].factor;
    const bool in_use = c.row() + 8 * slot < task.len_q - task.first_query;
    float zero = 0, largest = 0;
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
#pragma unroll
      for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
        c.o[n][e] = in_use ? c.o[n][e] * factor : 0.0F;
        zero = fmaf(c.o[n][e], 0.0F, zero);
        largest = fmaxf(largest, fabsf(c.o[n][e]));
      }
    }
    if (!in_use) continue;
    const bool is_nan = factor != factor;
    found.right = found.right && (zero == 0 || is_nan) &&
                  fabsf(c.flushed_reference[slot]) < attention::kLargestReference &&
                  (!is_fp8(p.output) || is_nan || divides_well(scale, largest));
    found.largest_o = max(found.largest_o, magnitude_bits(zero == 0 ? largest : factor));
    found.largest_s = max(found.largest_s, magnitude_bits(ends[slot].largest));
  }
  return found;
}

// Normalises and stores O of this warp's rows, and raises the largest values. Returns
// false if the result is wrong, as in store_rows; then no largest value is raised.
template <class S>
__device__ __forceinline__ bool store_option_rows(const OptionParams& p, const OptionTask& task,
                                                  Consumer<S>& c, const OptionRowEnd (&ends)[2]) {
  // An fp32 division would be a call, for which O would leave its registers.
  const float o_scale = p.o_scale.at(task.batch, task.head);
  const attention::Scale scale{o_scale, __fdividef(1.0F, o_scale)};
  const RowsFound found = normalise_rows<S>(p, task, c, ends, scale);
  const int columns = min(S::kConfig.head_dim_v, p.head_dim_v - task.column);
  if (p.output == OutputType::e4m3) {
    store_fp8_rows<S, OutputType::e4m3>(p, task, c, scale, columns);
  } else if (p.output == OutputType::e5m2) {
    store_fp8_rows<S, OutputType::e5m2>(p, task, c, scale, columns);
  } else if (p.output == OutputType::f32) {
    store_f32_rows<S>(p, task, c, columns);
  } else {
    store_16_bit_rows<S>(p, task, c, columns);
  }
  if (__all_sync(0xffffffffU, found.right) == 0) return false;
  raise(p.amax_o, task, found.largest_o, c.lane());
  if (task.column == 0) raise(p.amax_s, task, found.largest_s, c.lane());
  return true;
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
