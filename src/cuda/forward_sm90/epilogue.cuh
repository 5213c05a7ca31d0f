// From a consumer's accumulators to O and LSE.
//
// Each warp stores its own 16 rows from its registers: nobody waits for anybody, Q's place is free
// as soon as the last scores are there, and rows past the end of a packed entry, which are the next
// entry's, need no care.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/consumer.cuh"
#include "cuda/forward_sm90/exact_rows.cuh"
#include "cuda/forward_sm90/shape.cuh"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::forward_sm90 {

// What one of a lane's two rows needs: O *= factor.
struct RowEnd {
  float factor, lse;
};

// `sum` over the whole row; in_use: the row is a query.
__device__ __forceinline__ RowEnd end_row(float sum, float reference, float sink, bool in_use) {
  RowEnd end{0, sink * kLn2};
  if (!in_use || sum == 0) return end;  // empty, which a NaN sum is not
  const float top = fmaxf(reference, sink);
  const float factor = ptx::exp2_approx(reference - top);
  const float all = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink - top));
  end.factor = __fdividef(factor, all);
  end.lse = (top + __log2f(all)) * kLn2;
  return end;
}

// The two rows of each lane: their sums completed, LSE written.
template <class S>
__device__ __forceinline__ void end_rows(const Params& p, const Consumer<S>& c,
                                         const TaskInfo& task, RowEnd (&ends)[2]) {
  const float sink = sink_log2(p, task.head);
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int row = c.row() + 8 * slot;
    const int query = task.first_query + row;
    ends[slot] =
        end_row(attention::quad_sum(c.sum[slot]), c.reference[slot], sink, query < task.len_q);
    if (p.lse != nullptr && c.lane() % 4 == 0 && query < task.rows_q) {
      p.lse[task.batch * p.lse_batch + task.head * p.lse_head + (task.q_row + row) * p.lse_row] =
          ends[slot].lse;
    }
  }
}

// Normalises and stores O of the lane's rows, of which `rows` of the tile exist. A quad has 16
// neighbouring columns of a row in two products, each lane two and two of them: lanes 2 i and
// 2 i + 1 exchange, so that each stores four at once, and the quad whole sectors of 32 bytes.
//
//   lane      0         1         2         3
//   has       0,1 8,9   2,3 a,b   4,5 c,d   6,7 e,f
//   stores    0 .. 3    8 .. b    4 .. 7    c .. f
//
// False when an output is not finite though its row's sum is no NaN.
template <class S>
__device__ __forceinline__ bool store_rows(const Params& p, const TaskInfo& task,
                                           const Consumer<S>& c, const RowEnd (&ends)[2]) {
  using Element = typename S::Element;
  const bool odd = c.lane() % 2 != 0;
  const int column = 2 * (c.lane() % 4) + (odd ? 6 : 0);
  const int rows = task.rows_q - task.first_query;
  bool right = true;
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const float factor = ends[slot].factor;  // 0 in an empty row
    uint32_t zero = 0;
    const int row = c.row() + 8 * slot;
    uint16_t* const out = output_row(p, task, row) + column;
#pragma unroll
    for (int part = 0; part < S::kOutParts; ++part) {
#pragma unroll
      for (int n = 0; n < S::kOutProducts; n += 2) {
        uint32_t word[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const auto& o = c.o[part][n + i];
          word[i] =
              Element::pack(fmaf(o[2 * slot], factor, 0.0F), fmaf(o[2 * slot + 1], factor, 0.0F));
          zero = Element::add_zero_times(word[i], zero);
        }
        const uint32_t got = __shfl_xor_sync(0xffffffffU, odd ? word[0] : word[1], 1);
        const int begin = 8 * (part * S::kOutProducts + n);
        // head_dim_v is a multiple of 8.
        if (row < rows && begin + column < p.head_dim_v) {
          *reinterpret_cast<uint2*>(out + begin) =
              odd ? make_uint2(got, word[1]) : make_uint2(word[0], got);
        }
      }
    }
    right = right && (zero == 0 || factor != factor);
  }
  return right;
}

}  // namespace flashcore::cuda::forward_sm90
