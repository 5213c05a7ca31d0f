// The notes of a query: -LSE log2(e), and delta, the sum of O dO less dLSE.
#pragma once

#include <cstdint>

#include "cuda/attention/units.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"

namespace flashcore::cuda::backward_sm90 {

inline constexpr int kLaneDims = 8;  // of a row, that a lane has

// Of query `row` of all blocks of block_q queries, by kLanes lanes side by side, all of which call
// this. Rows past the last query, and those that see no key, have no weights.
template <int kLanes, class Element>
__device__ __forceinline__ void write_note(const RowParams& p, int64_t row, int block_q, int lane) {
  const int64_t number = row / block_q;
  const auto in_block = static_cast<int>(row - number * block_q);
  const int64_t batch_head = number / p.q_blocks;
  const int query = static_cast<int>(number - batch_head * p.q_blocks) * block_q + in_block;
  const auto batch = static_cast<int>(batch_head / p.heads_q);
  const auto head = static_cast<int>(batch_head - int64_t{batch} * p.heads_q);
  const bool exists = query < p.seqlen_q;
  float delta = 0;
  if (exists) {
    const auto* const o = static_cast<const uint16_t*>(p.o) + batch * p.o_batch + head * p.o_head +
                          query * p.o_row + lane * kLaneDims;
    const auto* const d_o = static_cast<const uint16_t*>(p.d_o.data) + batch * p.d_o.batch +
                            head * p.d_o.head + query * p.d_o.row + lane * kLaneDims;
    const uint4 x = *reinterpret_cast<const uint4*>(o), y = *reinterpret_cast<const uint4*>(d_o);
    const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = Element::unpack(xs[i]), b = Element::unpack(ys[i]);
      delta = fmaf(a.x, b.x, fmaf(a.y, b.y, delta));
    }
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    delta += __shfl_xor_sync(0xffffffffU, delta, step);
  }
  if (lane != 0) return;
  float negative_lse = -__int_as_float(0x7f800000);
  if (exists) {
    const float lse = p.lse[batch * p.lse_batch + head * p.lse_head + query * p.lse_row];
    if (p.d_lse != nullptr) {
      delta -= p.d_lse[batch * p.d_lse_batch + head * p.d_lse_head + query * p.d_lse_row];
    }
    if (lse == -__int_as_float(0x7f800000)) {
      delta = 0;
    } else {
      negative_lse = -lse * attention::kLog2E;
    }
    if (lse == __int_as_float(0x7f800000)) negative_lse = __int_as_float(0x7fffffff);
  }
  float* const notes = p.notes + number * (2 * block_q) + in_block;
  notes[0] = negative_lse;
  notes[block_q] = delta;
}

}  // namespace flashcore::cuda::backward_sm90
