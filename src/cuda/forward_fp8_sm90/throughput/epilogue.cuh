// Turns a consumer's accumulators into O and LSE, and finds the largest values.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/exact_rows.cuh"
#include "cuda/attention/fp8/row_end.cuh"
#include "cuda/attention/large_reference.hpp"
#include "cuda/attention/quotient.cuh"
#include "cuda/forward_fp8_sm90/throughput/consumer.cuh"
#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

// Completes the sums of each lane's two rows and writes their LSE, once for all parts of V.
template <class S>
__device__ __forceinline__ void end_rows(const typename S::Params& p, Consumer<S>& c,
                                         const typename S::Task& task, RowEnd (&ends)[2]) {
  const float sink = sink_of(p, task.head), unit = value_scale(p, task);
  // See large_reference.hpp.
  if (!(sink < -kNoKey)) c.flushed_reference[0] = c.flushed_reference[1] = sink;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = c.row() + 8 * slot;
    const int query = task.first_query + row;
    const float sum = attention::quad_sum(c.flushed_sum[slot]);
    const float reference = c.flushed_reference[slot];
    ends[slot] = end_row(sum, c.flushed_rounded[slot], reference, sink, unit, query < task.len_q);
    if constexpr (S::kOptions) {
      if (p.amax_s.data != nullptr) {
        const float2 largest = c.largest_scores();
        const float score = attention::quad_max(slot == 0 ? largest.x : largest.y);
        ends[slot].largest *= ptx::exp2_approx(score - reference);
      }
    }
    if (p.lse != nullptr && place_of(p, task).column == 0 && c.lane() % 4 == 0 &&
        query < task.rows_q) {
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

// Stores a lane's normalised row of O in fp8. `columns`: V's in this part.
template <ElementType kType, class S>
__device__ __forceinline__ void store_fp8_row(const OptionParams& p, const Consumer<S>& c, int slot,
                                              int64_t place, bool exists, int columns,
                                              const attention::Scale& scale) {
  const int lane = c.lane() % 4;
  auto* const out = static_cast<uint8_t*>(p.o) + place + 8 * lane;
#pragma unroll
  for (int n = 0; n < S::kOutProducts; n += 4) {
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pair[i] = pack_fp8x2(kType, attention::quotient(c.o[n + i][2 * slot], scale),
                           attention::quotient(c.o[n + i][2 * slot + 1], scale));
    }
    const uint2 bytes = exchange(pair[0] | pair[1] << 16, pair[2] | pair[3] << 16, lane);
    if (exists && 8 * (n + lane) < columns) *reinterpret_cast<uint2*>(out + 8 * n) = bytes;
  }
}

// Stores a lane's normalised row of O. `scale`: of an fp8 O.
template <class S>
__device__ __forceinline__ void store_row(const typename S::Params& p, const typename S::Task& task,
                                          const Consumer<S>& c, int slot,
                                          const attention::Scale& scale) {
  const int lane = c.lane();
  const bool odd = lane % 2 != 0;
  const int row = c.row() + 8 * slot;
  const bool exists = row < task.rows_q - task.first_query;
  const int64_t place = output_place(p, task, row);
  constexpr int kWidth = S::kConfig.head_dim_v;
  const int columns = S::kOptions ? min(kWidth, p.head_dim_v - place_of(p, task).column) : kWidth;
  if constexpr (S::kOptions) {
    using enum ElementType;
    if (p.output == e4m3) return store_fp8_row<e4m3>(p, c, slot, place, exists, columns, scale);
    if (p.output == e5m2) return store_fp8_row<e5m2>(p, c, slot, place, exists, columns, scale);
  }
  if (p.output == ElementType::f32) {
    float* const out = static_cast<float*>(p.o) + place + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < S::kOutProducts; ++n) {
      if (exists && 8 * n < columns) {
        *reinterpret_cast<float2*>(out + 8 * n) =
            make_float2(c.o[n][2 * slot], c.o[n][2 * slot + 1]);
      }
    }
    return;
  }
  uint16_t* const out = static_cast<uint16_t*>(p.o) + place;
  const int column = 2 * (lane % 4) + (odd ? 6 : 0);
  const bool is_f16 = p.output == ElementType::f16;
#pragma unroll
  for (int n = 0; n < S::kOutProducts; n += 2) {
    uint32_t pair[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float low = c.o[n + i][2 * slot], high = c.o[n + i][2 * slot + 1];
      pair[i] = is_f16 ? ptx::pack_f16x2(low, high) : ptx::pack_bf16x2(low, high);
    }
    store_pair(out, pair[0], pair[1], odd, 8 * n + column, exists && 8 * n < columns);
  }
}

// Returns whether quotient() rounds like an fp32 division, if outputs are not too large.
__device__ __forceinline__ bool divides_well(const attention::Scale& by, float largest) {
  return by.scale >= attention::kSmallestScale && by.scale <= attention::kLargestScale &&
         largest < 0x1p40F;
}

// The result for a lane's rows. Not right: an output is not finite although its row's sum is not NaN, a
// row's reference is too large, or outputs or their scale are too far from 1 for fp8.
struct RowsFound {
  bool right = true;
  uint32_t largest_o = 0, largest_s = 0;
};

// Normalises a lane's row of O in place.
template <class S>
__device__ __forceinline__ void normalise_row(const typename S::Params& p,
                                              const typename S::Task& task, Consumer<S>& c,
                                              int slot, const RowEnd& end,
                                              const attention::Scale& scale, RowsFound& found) {
  const float factor = end.factor;
  const bool drops = S::kOptions && c.row() + 8 * slot >= task.len_q - task.first_query;
  float zero = 0, largest = 0;
#pragma unroll
  for (int n = 0; n < S::kOutProducts; ++n) {
#pragma unroll
    for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
      c.o[n][e] = drops ? 0.0F : c.o[n][e] * factor;
      zero = fmaf(c.o[n][e], 0.0F, zero);
      if constexpr (S::kOptions) largest = fmaxf(largest, fabsf(c.o[n][e]));
    }
  }
  if (drops) return;
  const bool is_nan = factor != factor;
  found.right = found.right && (zero == 0 || is_nan) &&
                fabsf(c.flushed_reference[slot]) < attention::kLargestReference;
  if constexpr (S::kOptions) {
    found.right = found.right && (!is_fp8(p.output) || is_nan || divides_well(scale, largest));
    found.largest_o = max(found.largest_o, magnitude_bits(zero == 0 ? largest : factor));
    found.largest_s = max(found.largest_s, magnitude_bits(end.largest));
  }
}

// Normalises and stores O of this warp's rows, and raises the largest values. Returns
// false if the result is wrong; then no largest value is raised.
template <class S>
__device__ __forceinline__ bool store_rows(const typename S::Params& p,
                                           const typename S::Task& task, Consumer<S>& c,
                                           const RowEnd (&ends)[2]) {
  attention::Scale scale{};
  if constexpr (S::kOptions) {
    // An fp32 division would be a call, for which O would leave its registers.
    const float o_scale = p.o_scale.at(task.batch, task.head);
    scale = {o_scale, __fdividef(1.0F, o_scale)};
  }
  RowsFound found;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    normalise_row(p, task, c, slot, ends[slot], scale, found);
    store_row(p, task, c, slot, scale);
  }
  if (__all_sync(0xffffffffU, found.right) == 0) return false;
  if constexpr (S::kOptions) {
    raise(p.amax_o, task, found.largest_o, c.lane());
    if (task.column == 0) raise(p.amax_s, task, found.largest_s, c.lane());
  }
  return true;
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
