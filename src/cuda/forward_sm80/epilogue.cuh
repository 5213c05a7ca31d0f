// From a warp's accumulators to O and LSE.
//
// Two ways out: 16-byte rows of Q's type, staged by each warp where its part of Q was; and element
// by element, any type and alignment, staged as fp32 where the whole block's tiles were.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/element.cuh"
#include "cuda/forward_sm80/scores.cuh"
#include "cuda/forward_sm80/shape.cuh"
#include "cuda/forward_sm80/task.cuh"
#include "cuda/forward_sm80/value_guard.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm80 {

inline constexpr float kLn2 = 0.6931471805599453F;

// Normalises a row's outputs, with its sink, and gives its LSE. A row without a key has O = 0.
template <Config kConfig>
__device__ __forceinline__ float finish_row(WarpState<kConfig>& w, int g, int slot, float sink,
                                            float rescale, bool in_use) {
  float sum = w.sum[g][slot];
  const float reference = w.reference[g][slot];
  const bool empty = !in_use || sum == 0;  // a NaN sum is not empty
  float lse = sink, factor = 0;
  if (!empty) {
    const float sink_log2 = sink * kLog2E;
    const float largest = fmaxf(reference, sink_log2);
    factor = ptx::exp2_approx(reference - largest);
    sum = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx(sink_log2 - largest));
    factor = __fdividef(factor, sum) * rescale;
    lse = (largest + __log2f(sum)) * kLn2;
  }
#pragma unroll
  for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
#pragma unroll
    for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
      w.o[g][n][e] = empty ? 0.0F : w.o[g][n][e] * factor;
    }
  }
  return lse;
}

template <Config kConfig, Features kFeatures>
__device__ __forceinline__ void finish_rows(const Params& p, const Task& task,
                                            WarpState<kConfig>& w) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (kFeatures == Features::all && p.splits > 1) {
#pragma unroll
    for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int row =
            task.first_query + warp * kConfig.warp_rows() + 16 * g + 8 * slot + lane / 4;
        if (lane % 4 == 0 && row < task.sequence.rows_q) {
          p.partial_rows[partial_row(p, task, row) * p.splits + find_split(p, ptx::block_index())] =
              make_float2(w.reference[g][slot], w.sum[g][slot]);
        }
      }
    }
    return;
  }
  const float sink = p.sinks.data == nullptr ? kNoKey : p.sinks.data[task.head * p.sinks.head];
  const float rescale = kFeatures == Features::all && p.dropout ? p.dropout_rescale : 1.0F;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = task.first_query + warp * kConfig.warp_rows() + 16 * g + 8 * slot + lane / 4;
      const float lse = finish_row<kConfig>(w, g, slot, sink, rescale, row < task.sequence.len_q);
      if (p.lse != nullptr && lane % 4 == 0 && row < task.sequence.rows_q) {
        p.lse[task.batch * p.lse_batch + task.head * p.lse_head +
              (task.sequence.q_begin + row) * p.lse_row] = lse;
      }
    }
  }
}

// Element offset of column 0 of query `row`.
__device__ inline int64_t o_offset(const Params& p, const Task& task, int row) {
  return task.batch * p.o_batch + task.head * p.o_head + (task.sequence.q_begin + row) * p.o_row;
}

// O in Q's type, in 16-byte pieces. Q in shared memory is overwritten, by each warp its own rows.
template <Config kConfig, class Element>
__device__ __forceinline__ void store_vectors(const Params& p, const Task& task,
                                              unsigned char* shared, const WarpState<kConfig>& w) {
  using Tile = typename Shape<kConfig>::OTile;
  constexpr int kChunks = kConfig.head_dim_v / 8, kRows = kConfig.warp_rows();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * kRows;
  __syncwarp();
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int row = first + 16 * g + 8 * slot + lane / 4;
        *reinterpret_cast<uint32_t*>(shared + Tile::chunk_offset(row, n) + lane % 4 * 4) =
            Element::pack(w.o[g][n][2 * slot], w.o[g][n][2 * slot + 1]);
      }
    }
  }
  __syncwarp();
  const int rows = static_cast<int>(task.sequence.rows_q) - task.first_query;
  auto* const o = static_cast<unsigned char*>(p.o) + 2 * o_offset(p, task, task.first_query);
#pragma unroll
  for (int i = 0; i < kRows * kChunks; i += 32) {
    const int row = first + (i + lane) / kChunks, chunk = (i + lane) % kChunks;
    if (row < rows && chunk * 8 < p.head_dim_v) {
      *reinterpret_cast<uint4*>(o + 2 * (row * p.o_row + chunk * 8)) =
          *reinterpret_cast<const uint4*>(shared + Tile::chunk_offset(row, chunk));
    }
  }
}

__device__ inline void store_as(ElementType type, void* data, int64_t at, float value) {
  switch (type) {
    case ElementType::f32:
      static_cast<float*>(data)[at] = value;
      break;
    case ElementType::f16:
      static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(ptx::pack_f16x2(value, 0));
      break;
    case ElementType::bf16:
      static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(ptx::pack_bf16x2(value, 0));
      break;
  }
}

// Where rows of O go, or of one split's part of O.
struct RowPlace {
  void* data;
  ElementType type;
  int64_t first, row;  // elements
};
__device__ inline RowPlace place_rows(const Params& p, const Task& task) {
  if (p.splits > 1) {
    const int64_t first =
        (partial_row(p, task, task.first_query) * p.splits + find_split(p, ptx::block_index())) *
        p.head_dim_v;
    return {p.partial_o, ElementType::f32, first, int64_t{p.splits} * p.head_dim_v};
  }
  return {p.o, p.o_type, o_offset(p, task, task.first_query), p.o_row};
}

// O element by element. `kinds`: the accumulators count values that are not finite; only outputs
// with such are written.
template <Config kConfig>
__device__ __forceinline__ void store_elements(const Params& p, const Task& task,
                                               unsigned char* shared, const WarpState<kConfig>& w,
                                               bool kinds) {
  static_assert(4 * kConfig.block_q() * kConfig.head_dim_v <= kConfig.smem_bytes());
  auto* const staged = reinterpret_cast<float*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * kConfig.warp_rows();
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first + 16 * g + 8 * (e / 2) + lane / 4;
        staged[row * kConfig.head_dim_v + 8 * n + 2 * (lane % 4) + e % 2] = w.o[g][n][e];
      }
    }
  }
  __syncwarp();
  const int limit =
      kinds ? static_cast<int>(task.sequence.len_q) : static_cast<int>(task.sequence.rows_q);
  const RowPlace place = place_rows(p, task);
#pragma unroll 1
  for (int row = first; row < first + kConfig.warp_rows(); ++row) {
    if (task.first_query + row >= limit) break;
    const int64_t o = place.first + row * place.row;
#pragma unroll 1
    for (int column = lane; column < p.head_dim_v; column += 32) {
      const float value = staged[row * kConfig.head_dim_v + column];
      if (!kinds) {
        store_as(place.type, place.data, o + column, value);
      } else if (value != 0) {
        store_as(place.type, place.data, o + column, nonfinite_of(value));
      }
    }
  }
}

}  // namespace flashcore::cuda::forward_sm80
