// Stores sums: rows that exist, and zeros in rows of a dense batch that no sequence uses.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/element.cuh"
#include "cuda/backward_sm80/general/params.hpp"
#include "cuda/backward_sm80/general/task.cuh"

namespace flashcore::cuda::backward_sm80::general {

// The first row of a target that a block stores, and how
// many: `used` and, in a dense batch, zeros up to `stored`.
struct StoredRows {
  int64_t first;
  int used, stored;
};

template <bool kQueries>
__device__ __forceinline__ StoredRows stored_rows(const Params& p, const Task& task,
                                                  const Target& target) {
  const int used = length_of<kQueries>(task.entry) - task.first;
  const bool packed = p.cu_seqlens_q.data != nullptr;
  const int all = (kQueries ? p.seqlen_q : p.seqlen_kv) - task.first;
  const int begin = kQueries ? task.entry.q_row : task.entry.kv_row;
  return {task.batch * target.batch + task.head * target.head +
              (int64_t{begin} + task.first) * target.row,
          used, packed ? used : all};
}

// Stores `left` of eight neighbours, the first at a multiple of eight columns.
__device__ __forceinline__ void store_eight(const Target& target, int64_t at, const float (&x)[8],
                                            int left) {
  if (target.chunks && left >= 8) {
    if (target.type == ElementType::f32) {
      float4* const to = reinterpret_cast<float4*>(static_cast<float*>(target.data) + at);
      to[0] = make_float4(x[0], x[1], x[2], x[3]);
      to[1] = make_float4(x[4], x[5], x[6], x[7]);
    } else {
      *reinterpret_cast<uint4*>(static_cast<uint16_t*>(target.data) + at) =
          make_uint4(pack_pair(target.type, x[0], x[1]), pack_pair(target.type, x[2], x[3]),
                     pack_pair(target.type, x[4], x[5]), pack_pair(target.type, x[6], x[7]));
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (e < left) store_element(target.type, target.data, at + e, x[e]);
  }
}

// Returns whether all stored sums of a lane are finite.
template <int kColumns>
__device__ __forceinline__ bool all_finite(const float (&sums)[kColumns][4], int row, int used) {
  float zero[2] = {0, 0};  // or NaN
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) zero[e / 2] = fmaf(sums[n][e], 0, zero[e / 2]);
  }
  return (row >= used || zero[0] == 0) && (row + 8 >= used || zero[1] == 0);
}

// Stores a warp's 16 rows, in columns from first_column on, through its part of X's shared
// memory. first_row: in the tile. kinds: the sums of that pass, which tell which outputs are NaN.
template <bool kQueries, int kColumns>
__device__ __forceinline__ void store_sums(const Params& p, const Task& task, const Target& target,
                                           const float (&sums)[kColumns][4], float scale,
                                           float* staging, int first_row, int lane, bool kinds,
                                           int first_column = 0) {
  constexpr int kWidth = 8 * kColumns, kPairs = kWidth / 2;
  const auto place = [](int row, int column) { return row * kWidth + (column ^ (row & 7) * 8); };
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int at = place(lane / 4 + 8 * slot, 8 * n + 2 * (lane % 4));
      *reinterpret_cast<float2*>(staging + at) =
          make_float2(sums[n][2 * slot], sums[n][2 * slot + 1]);
    }
  }
  __syncwarp();
  const StoredRows rows = stored_rows<kQueries>(p, task, target);
#pragma unroll 1
  for (int i = lane; i < 16 * kPairs; i += 32) {
    const int row = i / kPairs, in_part = i % kPairs * 2, at_row = first_row + row;
    const int column = first_column + in_part;
    if (at_row >= rows.stored || column >= target.columns) continue;
    float2 x = *reinterpret_cast<const float2*>(staging + place(row, in_part));
    if (at_row >= rows.used) x = make_float2(0, 0);
    const int64_t at = rows.first + at_row * target.row + column;
    const bool has_second = column + 1 < target.columns;
    if (kinds) {
      const float nan = __int_as_float(0x7fffffff);
      if (x.x != 0) store_element(target.type, target.data, at, nan);
      if (has_second && x.y != 0) store_element(target.type, target.data, at + 1, nan);
    } else if (target.pairs) {
      store_pair(target.type, target.data, at, x.x * scale, x.y * scale);
    } else {
      store_element(target.type, target.data, at, x.x * scale);
      if (has_second) store_element(target.type, target.data, at + 1, x.y * scale);
    }
  }
}

}  // namespace flashcore::cuda::backward_sm80::general
