// Merge. A warp has 32 rows: each lane weighs one of them, and then all lanes take chunks of the 32 in
// turn, so that both of a row's inputs are read and its output is written in whole lines.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/convert/common/element.cuh"
#include "cuda/convert/merge/params.hpp"

namespace flashcore::cuda::convert::merge {

constexpr uint32_t kAllLanes = 0xffffffffU;

struct Weights {
  float a, b, lse;
};

// In fp64, as on the CPU: it costs a lane a few hundred instructions for a whole row.
__device__ inline Weights weights_of(float lse_a, float lse_b) {
  const double a = lse_a, b = lse_b;
  // The sum of both is +inf where one is and the other is not -inf.
  if (isnan(lse_a) || isnan(lse_b) || lse_a + lse_b == __int_as_float(0x7f800000)) {
    const float nan = __int_as_float(0x7fffffff);
    return {nan, nan, nan};
  }
  const double largest = a > b ? a : b;
  if (isinf(largest) && largest < 0) return {0, 0, lse_a};
  const double part_a = a == largest ? 1.0 : exp(a - largest);
  const double part_b = b == largest ? 1.0 : exp(b - largest);
  const double sum = part_a + part_b;
  return {static_cast<float>(part_a / sum), static_cast<float>(part_b / sum),
          static_cast<float>(largest + log(sum))};
}

struct Place {
  int64_t batch, head, row;
};
__device__ inline Place place_of(const Params& p, int64_t number) {
  const int64_t batch_head = number / p.rows;
  return {batch_head / p.heads, batch_head % p.heads, number % p.rows};
}
__device__ inline int64_t at(const attention::RowStride& stride, const Place& place) {
  return place.batch * stride.batch + place.head * stride.head + place.row * stride.row;
}

// A part of weight 0 is left out and not read: it may hold NaN.
__device__ inline void merge_element(const Params& p, const Weights& weights, int64_t a, int64_t b,
                                     int64_t o) {
  const float of_a = weights.a == 0 ? 0.0F : load_element(p.type, p.o_a, a);
  const float of_b = weights.b == 0 ? 0.0F : load_element(p.type, p.o_b, b);
  store_element(p.o_type, p.o, o, weights.a * of_a + weights.b * of_b);
}

// What a lane merges in a step: a chunk of one row.
struct Chunk {
  Weights weights;
  int64_t a, b, o;
  bool exists;
};
constexpr int kAtOnce = 2;  // chunks of a lane

__device__ __forceinline__ uint4 load_bytes(const void* data, int64_t at, bool wanted) {
  if (!wanted) return {};
  return *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(data) + at);
}

// Merges 16 aligned bytes.
template <int kCount>
__device__ __forceinline__ void merge_bytes(const Params& p, const Chunk& chunk, const uint4& of_a,
                                            const uint4& of_b) {
  const uint32_t words_a[4] = {of_a.x, of_a.y, of_a.z, of_a.w};
  const uint32_t words_b[4] = {of_b.x, of_b.y, of_b.z, of_b.w};
  float out[kCount];
#pragma unroll
  for (int d = 0; d < kCount; ++d) {
    const auto element = [&](const uint32_t(&words)[4]) {
      if constexpr (kCount == 4) return __uint_as_float(words[d]);
      const auto bits = static_cast<uint16_t>(words[d / 2] >> 16 * (d % 2));
      return p.type == ElementType::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
    };
    out[d] = chunk.weights.a * element(words_a) + chunk.weights.b * element(words_b);
  }
  if (p.o_type == ElementType::f32) {
    auto* const to = reinterpret_cast<float4*>(static_cast<float*>(p.o) + chunk.o);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      to[i] = make_float4(out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3]);
    }
    return;
  }
  if constexpr (kCount == 8) {
    const auto pack = [&](int d) {
      return p.o_type == ElementType::f16 ? ptx::pack_f16x2(out[d], out[d + 1])
                                          : ptx::pack_bf16x2(out[d], out[d + 1]);
    };
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.o) + chunk.o) =
        make_uint4(pack(0), pack(2), pack(4), pack(6));
  }
}

// All loads before the first store: the compiler cannot know that the output is no input.
template <int kCount>
__device__ __forceinline__ void merge_chunks(const Params& p, const Chunk (&chunks)[kAtOnce]) {
  constexpr int kBytes = 16 / kCount;
  uint4 of_a[kAtOnce], of_b[kAtOnce];
#pragma unroll
  for (int n = 0; n < kAtOnce; ++n) {
    const Chunk& one = chunks[n];
    of_a[n] = load_bytes(p.o_a, one.a * kBytes, one.exists && one.weights.a != 0);
    of_b[n] = load_bytes(p.o_b, one.b * kBytes, one.exists && one.weights.b != 0);
  }
#pragma unroll
  for (int n = 0; n < kAtOnce; ++n) {
    if (chunks[n].exists) merge_bytes<kCount>(p, chunks[n], of_a[n], of_b[n]);
  }
}

__device__ inline int64_t from_lane(int64_t x, int lane) { return __shfl_sync(kAllLanes, x, lane); }

// What a lane has found of its row.
struct Row {
  Weights weights;
  int64_t a, b, o;
};

// All lanes take part in the shuffles. `chunks` of each of `rows` rows.
__device__ __forceinline__ Chunk find_chunk(const Params& p, const Row& mine, int number, int rows,
                                            int chunks) {
  const auto row = static_cast<int>(p.by_chunks.divide(static_cast<uint32_t>(number)));
  const int source = row < kWarpRows ? row : 0;
  const int64_t column = int64_t{number - row * chunks} * p.per_chunk;
  return {{__shfl_sync(kAllLanes, mine.weights.a, source),
           __shfl_sync(kAllLanes, mine.weights.b, source), 0},
          from_lane(mine.a, source) + column,
          from_lane(mine.b, source) + column,
          from_lane(mine.o, source) + column,
          number < rows * chunks};
}

__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ Params p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
  const int chunks = p.per_chunk == 1 ? p.width : p.width / p.per_chunk;
  for (int64_t first = warp * kWarpRows; first < p.all_rows; first += warps * kWarpRows) {
    Row mine{};
    if (first + lane < p.all_rows) {
      const Place place = place_of(p, first + lane);
      mine.weights = weights_of(p.lse_a[at(p.lse_a_at, place)], p.lse_b[at(p.lse_b_at, place)]);
      if (p.lse != nullptr) p.lse[at(p.lse_at, place)] = mine.weights.lse;
      mine.a = at(p.o_a_at, place), mine.b = at(p.o_b_at, place), mine.o = at(p.o_at, place);
    }
    const auto rows = static_cast<int>(std::min<int64_t>(p.all_rows - first, kWarpRows));
    for (int begin = 0; begin < rows * chunks; begin += kAtOnce * 32) {
      Chunk found[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        found[n] = find_chunk(p, mine, begin + 32 * n + lane, rows, chunks);
      }
      if (p.per_chunk == 8) {
        merge_chunks<8>(p, found);
      } else if (p.per_chunk == 4) {
        merge_chunks<4>(p, found);
      } else {
#pragma unroll
        for (const Chunk& one : found) {
          if (one.exists) merge_element(p, one.weights, one.a, one.b, one.o);
        }
      }
    }
  }
}

}  // namespace flashcore::cuda::convert::merge
