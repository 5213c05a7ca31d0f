// A row's partial results become one: a warp a row.
//
// Each lane reads the numbers of a part of its own, and its columns of eight parts at once, so that
// a row of many parts waits for memory seldom. Parts are added in the order of their keys, whatever
// other rows there are: the same parts give the same bits in every batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/output.cuh"

namespace flashcore::cuda::attention::decode {

// Of a row: a lane has columns lane, lane + 32, ...
template <int kLaneColumns>
struct Joined {
  float largest = kNoKey, sum = 0, o[kLaneColumns] = {};
};

// at(i): where part i's numbers are in `rows`, and its outputs in `outputs`, in rows of head_dim.
template <int kLaneColumns, class At>
__device__ __forceinline__ Joined<kLaneColumns> join_parts(const float2* rows, const float* outputs,
                                                           int head_dim, int count, At at,
                                                           int lane) {
  constexpr int kAtOnce = 8;
  Joined<kLaneColumns> joined;
  float2 own = make_float2(kNoKey, 0);
#pragma unroll 1
  for (int part = lane; part < count; part += 32) {
    own = rows[at(part)];
    joined.largest = fmaxf(joined.largest, own.x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    joined.largest = fmaxf(joined.largest, __shfl_xor_sync(0xffffffffU, joined.largest, step));
  }
#pragma unroll 1
  for (int first = 0; first < count; first += 32) {
    if (count > 32) own = first + lane < count ? rows[at(first + lane)] : make_float2(kNoKey, 0);
    const bool seen = own.y != 0;  // otherwise no key of the part is seen; a NaN is
    const float weight = seen ? weight_of(own.x, joined.largest) : 0.0F;
    joined.sum += own.y * weight;
    const int here = min(32, count - first);
#pragma unroll 1
    for (int begin = 0; begin < here; begin += kAtOnce) {
      float x[kAtOnce][kLaneColumns];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t from = at(first + min(begin + j, here - 1)) * head_dim;
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) {
          const int column = lane + 32 * c;
          x[j][c] = column < head_dim ? outputs[from + column] : 0.0F;
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int part = min(begin + j, here - 1);
        const float of_part = __shfl_sync(0xffffffffU, weight, part);
        const bool counts = __shfl_sync(0xffffffffU, static_cast<int>(seen), part) != 0;
        if (!counts || begin + j >= here) continue;
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) {
          joined.o[c] = with_part(joined.o[c], of_part, x[j][c]);
        }
      }
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    joined.sum += __shfl_xor_sync(0xffffffffU, joined.sum, step);
  }
  return joined;
}

// A row of O and LSE, from its parts.
template <int kLaneColumns>
__device__ __forceinline__ void store_row(const Params& p, const Row& row,
                                          const Joined<kLaneColumns>& joined, int lane) {
  const Ending ending = ending_of(p, row.head, joined.largest, joined.sum);
  const int64_t output_row = int64_t{row.entry.q_row} + row.query;
  const int64_t first = output_at(p, row.batch, row.head, output_row);
#pragma unroll
  for (int c = 0; c < kLaneColumns; ++c) {
    const int column = lane + 32 * c;
    if (column >= p.head_dim_v) continue;
    store_output(p, first + column, ending.empty ? 0.0F : joined.o[c] * ending.factor);
  }
  if (p.lse != nullptr && lane == 0) p.lse[lse_at(p, row.batch, row.head, output_row)] = ending.lse;
}

}  // namespace flashcore::cuda::attention::decode
