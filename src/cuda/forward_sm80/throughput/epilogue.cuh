// Turns a warp's accumulators into O and LSE.
//
// There are two ways: 16-byte rows of Q's type, which each warp stages in its part of Q;
// and single elements of any type and alignment, staged as fp32 in the whole block's tiles.
#pragma once

#include <cstdint>

#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/fp8_scales.cuh"
#include "cuda/forward_sm80/throughput/outputs.cuh"
#include "cuda/forward_sm80/throughput/scores.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/value_guard.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/special.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// Normalises a row's outputs, which are finite, with its sink, and returns its LSE.
// A row without a key has O = 0. `unit`: the reference's unit, in natural units.
template <Config kConfig>
__device__ __forceinline__ float finish_row(WarpState<kConfig>& w, int g, int slot, float sink,
                                            float rescale, float unit) {
  float sum = w.sum[g][slot];
  const float reference = w.reference[g][slot] * unit;
  const bool empty = sum == 0;  // a NaN sum is not empty
  float lse = sink, factor = 0;
  if (!empty) {
    const float largest = fmaxf(reference, sink);
    factor = ptx::exp2_approx((reference - largest) * kLog2E);
    sum = sum * factor + (sink == kNoKey ? 0.0F : ptx::exp2_approx((sink - largest) * kLog2E));
    factor = __fdividef(factor, sum) * rescale;
    lse = largest + __log2f(sum) * kLn2;
  }
#pragma unroll
  for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
#pragma unroll
    for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
      w.o[g][n][e] *= factor;
    }
  }
  return lse;
}

// Treats the block's rows from len_q on, which are no
// queries, as rows that see no key. `first_row`: the lane's.
template <Config kConfig>
__device__ __forceinline__ void clear_rows(WarpState<kConfig>& w, int first_row, int len_q) {
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      if (first_row + 16 * g + 8 * slot < len_q) continue;
      w.sum[g][slot] = 0;
#pragma unroll
      for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
        w.o[g][n][2 * slot] = w.o[g][n][2 * slot + 1] = 0;
      }
    }
  }
}

template <Config kConfig>
__device__ __forceinline__ void scale_outputs(WarpState<kConfig>& w, float factor) {
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int n = 0; n < kConfig.head_dim_v / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) w.o[g][n][e] *= factor;
    }
  }
}

template <Config kConfig, Features kFeatures, class P>
__device__ __forceinline__ void finish_rows(const P& p, const Task& task, WarpState<kConfig>& w,
                                            float unit) {
  const int lane = ptx::thread_index() % 32;
  const int warp = ptx::thread_index() / 32;
  if (const auto len_q = static_cast<int>(task.sequence.len_q);
      task.first_query + kConfig.block_q() > len_q) {
    clear_rows<kConfig>(w, task.first_query + warp * kConfig.warp_rows() + lane / 4, len_q);
  }
  if (kFeatures == Features::all && p.splits > 1) {
    if constexpr (kHasScales<P>) scale_outputs<kConfig>(w, value_factor<kConfig>(p));
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
  float rescale = kFeatures == Features::all && p.dropout ? p.dropout_rescale : 1.0F;
  if constexpr (kHasScales<P>) rescale *= value_factor<kConfig>(p);
  [[maybe_unused]] Largest largest;
  [[maybe_unused]] LargestScore logit;
#pragma unroll
  for (int g = 0; g < kConfig.row_groups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = task.first_query + warp * kConfig.warp_rows() + 16 * g + 8 * slot + lane / 4;
      if constexpr (kHasScales<P>) {
        if (p.amax_s.data != nullptr) {
          largest.add(largest_probability(w.reference[g][slot] * unit, w.sum[g][slot], sink));
        }
      }
      if constexpr (kHasLogits<P>) logit.add(w.reference[g][slot] * unit, w.sum[g][slot]);
      const float lse = finish_row<kConfig>(w, g, slot, sink, rescale, unit);
      if (p.lse != nullptr && lane % 4 == 0 && row < task.sequence.rows_q) {
        p.lse[task.batch * p.lse_batch + task.head * p.lse_head +
              (task.sequence.q_begin + row) * p.lse_row] = lse;
      }
    }
  }
  if constexpr (kHasScales<P>) largest.put(p.amax_s, task);
  if constexpr (kHasLogits<P>) logit.put(p.max_logit, task);
}

// Returns the element offset of column 0 of query `row`.
__device__ inline int64_t o_offset(const Params& p, const Task& task, int row) {
  return task.batch * p.o_batch + task.head * p.o_head + (task.sequence.q_begin + row) * p.o_row;
}

// Stores a warp's rows [first, first + kRows) of a tile, kChunks pieces of 16 bytes each from
// first_chunk on, except those at or past `rows` or `chunks`. `o`: piece 0 of the tile's row 0.
template <class Tile, int kRows, int kChunks>
__device__ __forceinline__ void copy_rows(const unsigned char* tile, int first, int first_chunk,
                                          int rows, int chunks, unsigned char* o, int64_t row_bytes,
                                          int lane) {
  // If 32 lanes hold whole rows, a lane keeps its column.
  constexpr int kRowsAtOnce = kChunks <= 32 && 32 % kChunks == 0 ? 32 / kChunks : 0;
  if constexpr (kRowsAtOnce > 0) {
    const int row = first + lane / kChunks, chunk = first_chunk + lane % kChunks;
    unsigned char* to = o + row * row_bytes + 16 * chunk;
    if (chunk >= chunks) return;
#pragma unroll
    for (int i = 0; i < kRows; i += kRowsAtOnce) {
      if (row + i < rows) {
        *reinterpret_cast<uint4*>(to) =
            *reinterpret_cast<const uint4*>(tile + Tile::chunk_offset(row + i, chunk));
      }
      to += kRowsAtOnce * row_bytes;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRows * kChunks; i += 32) {
      const int row = first + (i + lane) / kChunks, chunk = first_chunk + (i + lane) % kChunks;
      if (row < rows && chunk < chunks) {
        *reinterpret_cast<uint4*>(o + row * row_bytes + 16 * chunk) =
            *reinterpret_cast<const uint4*>(tile + Tile::chunk_offset(row, chunk));
      }
    }
  }
}

// Stores O in Q's type, in 16-byte pieces. Each warp overwrites its own rows of Q in shared memory.
template <Config kConfig, class Element>
__device__ __forceinline__ void store_vectors(const Params& p, const Task& task,
                                              unsigned char* shared, const WarpState<kConfig>& w) {
  using Tile = typename Shape<kConfig>::OTile;
  constexpr int kChunks = kConfig.head_dim_v / 8, kRows = kConfig.warp_rows();
  const int lane = ptx::thread_index() % 32;
  const int first = ptx::thread_index() / 32 * kRows;
  __syncwarp();
  const uint32_t lane_row = Tile::chunk_offset(first + lane / 4, 0) + lane % 4 * 4;
#pragma unroll
  for (int n = 0; n < kChunks; ++n) {
    unsigned char* const to = shared + Tile::template advance<1>(lane_row, n);
#pragma unroll
    for (int slot = 0; slot < 2 * kConfig.row_groups; ++slot) {
      const float(&o)[4] = w.o[slot / 2][n];
      *reinterpret_cast<uint32_t*>(to + slot * 8 * Tile::kPanelRowBytes) =
          Element::pack(o[slot % 2 * 2], o[slot % 2 * 2 + 1]);
    }
  }
  __syncwarp();
  const int rows = static_cast<int>(task.sequence.rows_q) - task.first_query;
  copy_rows<Tile, kRows, kChunks>(
      shared, first, 0, rows, p.head_dim_v / 8,
      static_cast<unsigned char*>(p.o) + 2 * o_offset(p, task, task.first_query), 2 * p.o_row,
      lane);
}

// The destination of rows of O, or of one split's part of O.
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

// Stores O element by element. `kinds`: the accumulators count values that are not finite; only outputs
// with such values are written, and a NaN of the first pass, from a score or a sink, stays.
template <Config kConfig, class P>
__device__ __forceinline__ void store_elements(const P& p, const Task& task, unsigned char* shared,
                                               const WarpState<kConfig>& w, bool kinds) {
  static_assert(4 * kConfig.block_q() * kConfig.head_dim_v <= kConfig.smem_bytes());
  auto* const staged = reinterpret_cast<float*>(shared);
  const int lane = ptx::thread_index() % 32;
  const int first = ptx::thread_index() / 32 * kConfig.warp_rows();
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
  const float weight = p.dropout ? 1 / kDropoutKinds.kept : 1.0F;
  [[maybe_unused]] ScaledOutput output;
  if constexpr (kHasScales<P>) output = output_of(p, task);
#pragma unroll 1
  for (int row = first; row < first + kConfig.warp_rows(); ++row) {
    if (task.first_query + row >= limit) break;
    const int64_t o = place.first + row * place.row;
#pragma unroll 1
    for (int column = lane; column < p.head_dim_v; column += 32) {
      const float value = staged[row * kConfig.head_dim_v + column];
      if constexpr (kHasScales<P>) {
        if (!kinds || (value != 0 && !output.left_nan(place.type, place.data, o + column))) {
          const float stored = kinds ? nonfinite_of(value * weight) : value;
          output.store(place.type, place.data, o + column, stored);
        }
      } else if (!kinds) {
        store_as(place.type, place.data, o + column, value);
      } else if (value != 0 && !is_nan_at(place.type, place.data, o + column)) {
        store_as(place.type, place.data, o + column, nonfinite_of(value * weight));
      }
    }
  }
  if constexpr (kHasScales<P>) output.largest.put(p.amax_o, task);
}

}  // namespace flashcore::cuda::forward_sm80::throughput
