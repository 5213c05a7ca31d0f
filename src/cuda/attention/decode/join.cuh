// Joins a row's partial results, one lane per column.
//
// Each lane also reads the numbers of one part, and its column of 16 parts at
// once, before it waits for any load. Parts are added in the order of their keys,
// independently of other rows: the same parts give the same bits in every batch.
#pragma once

#include <cstdint>

#include "cuda/attention/combine_math.hpp"
#include "cuda/attention/decode/output.cuh"

namespace flashcore::cuda::attention::decode {

struct Joined {
  float largest = kNoKey, sum = 0, o = 0;
};

// Called by a warp whose lanes have different columns. at(i): index of part
// i's numbers in `rows`, and of its outputs in `outputs`, in rows of head_dim.
template <class At>
__device__ __forceinline__ Joined join_parts(const float2* rows, const float* outputs, int head_dim,
                                             int count, At at, int column) {
  constexpr int kAtOnce = 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool exists = column < head_dim;
  Joined joined;
  float2 own = make_float2(kNoKey, 0);
  float x[kAtOnce];
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const bool wanted = exists && first + j < count;
      x[j] = wanted ? outputs[at(first + j) * head_dim + column] : 0.0F;
    }
  };
  load(0);
#pragma unroll 1
  for (int part = lane; part < count; part += 32) {
    own = rows[at(part)];
    joined.largest = fmaxf(joined.largest, own.x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    joined.largest = fmaxf(joined.largest, __shfl_xor_sync(0xffffffffU, joined.largest, step));
  }
  float weight = 0;
  bool seen = false;
#pragma unroll 1
  for (int first = 0; first < count; first += kAtOnce) {
    if (first > 0) load(first);
    if (first % 32 == 0) {
      if (count > 32) own = first + lane < count ? rows[at(first + lane)] : make_float2(kNoKey, 0);
      seen = own.y != 0;  // otherwise no key of the part is visible; a NaN counts
      weight = seen ? weight_of(own.x, joined.largest) : 0.0F;
      joined.sum += own.y * weight;
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int part = first % 32 + j;
      const float of_part = __shfl_sync(0xffffffffU, weight, part);
      if (__shfl_sync(0xffffffffU, static_cast<int>(seen), part) == 0) continue;
      joined.o = with_part(joined.o, of_part, x[j]);
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    joined.sum += __shfl_xor_sync(0xffffffffU, joined.sum, step);
  }
  return joined;
}

// Stores a column of a row of O, and LSE, from the row's parts.
__device__ __forceinline__ void store_row(const Params& p, const Row& row, const Joined& joined,
                                          int column) {
  const Ending ending = ending_of(p, row.head, joined.largest, joined.sum);
  const int64_t output_row = int64_t{row.entry.q_row} + row.query;
  if (column < p.head_dim_v) {
    store_element(p.o_type, p.o, output_at(p, row.batch, row.head, output_row) + column,
                  ending.empty ? 0.0F : joined.o * ending.factor);
  }
  if (p.lse != nullptr && column == 0) {
    p.lse[lse_at(p, row.batch, row.head, output_row)] = ending.lse;
  }
}

}  // namespace flashcore::cuda::attention::decode
