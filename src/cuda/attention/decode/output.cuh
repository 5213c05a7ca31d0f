// Rows of O and LSE, and their computation from partial results.
//
// A partial result: the largest score, the sum of e^(score - largest), and that sum's outputs.
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/params.hpp"
#include "cuda/attention/element.cuh"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/units.hpp"
#include "cuda/ptx/exp2.cuh"

namespace flashcore::cuda::attention::decode {

struct Row {
  int batch, head, query;
  Entry entry;
};

// Finds row `index` of O: heads within sequences, or packed rows within heads.
__device__ inline Row find_row(const Params& p, int64_t index) {
  const bool packed = p.cu_seqlens_q.data != nullptr;
  const int64_t rows = packed ? p.total_q : p.seqlen_q;
  const int64_t batch_head = index / rows;
  Row row{};
  row.query = static_cast<int>(index - batch_head * rows);
  if (packed) {
    row.head = static_cast<int>(batch_head);
    row.batch = last_entry(row.query, p.batch,
                           [&](int b) { return clamped(p.cu_seqlens_q.at(b), 0, p.total_q); });
  } else {
    row.batch = static_cast<int>(batch_head / p.heads_q);
    row.head = static_cast<int>(batch_head - int64_t{row.batch} * p.heads_q);
  }
  row.entry = find_cached_entry(p, p.cache, row.batch).entry;
  if (packed) row.query -= row.entry.q_row;
  return row;
}

// Returns the weight of a part with largest score `largest`, relative to the largest of all.
__device__ __forceinline__ float weight_of(float largest, float of_all) {
  return split_weight(largest, of_all, kLog2E, [](float x) { return ptx::exp2_approx(x); });
}

__device__ inline float exp_of(float x) { return ptx::exp2_approx(x * kLog2E); }

// The factor of a row's joined outputs, and its LSE. empty:
// the outputs are 0, for any factor. A NaN sum is not empty.
struct Ending {
  bool empty;
  float factor, lse;
};

__device__ inline Ending ending_of(const Params& p, int head, float largest, float sum) {
  const bool empty = sum == 0;
  const float sink = p.sinks.data == nullptr ? kNoKey : p.sinks.data[head * p.sinks.head];
  const float top = fmaxf(largest, sink);
  const float share = exp_of(largest - top);
  sum = sum * share + (sink == kNoKey ? 0.0F : exp_of(sink - top));
  return {empty, __fdividef(share, sum), empty ? sink : top + __log2f(sum) * kLn2};
}

__device__ inline int64_t output_at(const Params& p, int batch, int head, int64_t row) {
  return batch * p.o_batch + head * p.o_head + row * p.o_row;
}

__device__ inline int64_t lse_at(const Params& p, int batch, int head, int64_t row) {
  return batch * p.lse_batch + head * p.lse_head + row * p.lse_row;
}

}  // namespace flashcore::cuda::attention::decode
