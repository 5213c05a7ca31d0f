// Quantisation on a GPU, bound by memory: an element is read once where its group lies in a tile (tokens,
// short blocks), and twice otherwise, the second time from L2 if it fits.
//
//   groups in tiles:  | tile: largest magnitudes -> shared memory | scales | the tile again: convert |
//   larger groups:    | scales = 0 | largest magnitudes -> scales | convert | scales |
//
// Threads of a tile: `lanes` neighbours in a row, eight elements each, then the next rows.
// The scale of a larger group is its largest magnitude until all rows are converted: so nothing is
// needed besides the outputs. A maximum and a sum of fixed parts do not depend on the order of blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/encode_fp8.hpp"
#include "cuda/attention/quotient.cuh"
#include "cuda/convert/quantize/params.hpp"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "problem/fp8_scale.hpp"

namespace flashcore::cuda::convert::quantize {

constexpr uint32_t kInfinity = 0x7F800000U, kMagnitude = 0x7FFFFFFFU;

// Lengths in device memory are not trusted: what they say is cut to what there is.
struct Entry {
  int64_t begin = 0;  // in packed tensors
  int32_t all = 0, in_use = 0;
};

__device__ __forceinline__ int64_t clamped(int64_t value, int64_t lowest, int64_t highest) {
  return value < lowest ? lowest : value > highest ? highest : value;
}

__device__ __forceinline__ Entry find_entry(const Params& p, int32_t batch) {
  Entry entry{0, p.rows, p.rows};
  if (p.cu_seqlens != nullptr) {
    entry.begin = clamped(p.cu_seqlens[batch * p.cu_seqlens_stride], 0, p.total);
    const int64_t end =
        clamped(p.cu_seqlens[(batch + 1) * p.cu_seqlens_stride], entry.begin, p.total);
    entry.all = entry.in_use = static_cast<int32_t>(clamped(end - entry.begin, 0, p.rows));
  }
  if (p.seqlens != nullptr) {
    entry.in_use = static_cast<int32_t>(clamped(p.seqlens[batch * p.seqlens_stride], 0, entry.all));
  }
  return entry;
}

// Rows [first, end) of a sequence and head.
struct Tile {
  int32_t batch = 0, head = 0, first = 0, end = 0;
  Entry entry;
};

__device__ __forceinline__ Tile find_tile(const Params& p) {
  const auto tiles = static_cast<uint32_t>(p.tiles), heads = static_cast<uint32_t>(p.heads);
  // Heads are innermost: they are neighbours where rows are [.., rows, heads, width].
  const uint32_t head = blockIdx.x % heads, rest = blockIdx.x / heads;
  const auto tile = static_cast<int32_t>(rest % tiles);
  Tile out{static_cast<int32_t>(rest / tiles), static_cast<int32_t>(head), 0, 0, {}};
  const int64_t span = int64_t{tile / p.tiles_per_span} * p.span;
  const int64_t first = span + int64_t{tile % p.tiles_per_span} * p.tile_rows;
  int64_t end = first + p.tile_rows;
  if (end > span + p.span) end = span + p.span;
  if (end > p.rows) end = p.rows;
  out.first = static_cast<int32_t>(first < end ? first : end);
  out.end = static_cast<int32_t>(end);
  out.entry = find_entry(p, out.batch);
  return out;
}

__device__ __forceinline__ int64_t scale_place(const Params& p, const Tile& tile, int32_t block) {
  return tile.batch * p.scale_stride.batch + tile.head * p.scale_stride.head +
         block * p.scale_stride.row;
}

// What a kernel is compiled for. kWhole: rows of x and of the output are whole aligned chunks.
template <Input kInput, bool kWhole>
struct Kind {
  static constexpr Input kOf = kInput;
  static constexpr bool kChunksAreWhole = kWhole;
  static constexpr int kWords = kInput == Input::f32 ? kChunk : kChunk / 2;
  static constexpr int kDepth = kWhole ? 16 / kWords : 1;  // chunks that a thread loads at once
};

// Loads the bits of `count` elements at `at` and zeros, eight in all.
template <class K>
__device__ __forceinline__ void load_chunk(const Params& p, int64_t at, int count,
                                           uint32_t (&words)[K::kWords]) {
#pragma unroll
  for (uint32_t& word : words) word = 0;
  if constexpr (K::kChunksAreWhole) {
    const auto* const from = reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(p.x) +
                                                            at * (K::kOf == Input::f32 ? 4 : 2));
#pragma unroll
    for (int i = 0; i < K::kWords / 4; ++i) {
      const uint4 four = count > 0 ? from[i] : uint4{};
      words[4 * i] = four.x, words[4 * i + 1] = four.y;
      words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i >= count) continue;
      if constexpr (K::kOf == Input::f32) {
        words[i] = static_cast<const uint32_t*>(p.x)[at + i];
      } else {
        words[i / 2] |= uint32_t{static_cast<const uint16_t*>(p.x)[at + i]} << 16 * (i % 2);
      }
    }
  }
}

template <class K>
__device__ __forceinline__ float element(const uint32_t (&words)[K::kWords], int i) {
  if constexpr (K::kOf == Input::f32) return __uint_as_float(words[i]);
  const auto bits = static_cast<uint16_t>(words[i / 2] >> 16 * (i % 2));
  return K::kOf == Input::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
}

__device__ __forceinline__ void load_mean(const Params& p, const Tile& tile, int column, int count,
                                          float (&mean)[kChunk]) {
  const int64_t at = tile.batch * p.mean_batch + tile.head * p.mean_head + column;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    mean[i] = p.mean != nullptr && i < count ? p.mean[at + i] : 0.0F;
  }
}

__device__ __forceinline__ int64_t row_place(const attention::RowStride& stride, const Tile& tile,
                                             int32_t row) {
  return tile.batch * stride.batch + tile.head * stride.head +
         (tile.entry.begin + row) * stride.row;
}

// Calls body(row, column, count, words, mean) for this thread's chunks of the tile; `words` of rows that
// are not in use are 0. All threads of a warp make the same calls: a row from tile.end on is none of
// the tile's, and a column may have no element.
template <class K, class Body>
__device__ __forceinline__ void each_chunk(const Params& p, const Tile& tile, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const int before = static_cast<int>(threadIdx.x) / p.lanes, together = kThreads / p.lanes;
  const int32_t readable = tile.end < tile.entry.in_use ? tile.end : tile.entry.in_use;
  for (int column = 0; column < p.head_dim; column += kChunk * p.lanes) {
    const int own = column + kChunk * lane, left = p.head_dim - own;
    const int count = left < 0 ? 0 : left < kChunk ? left : kChunk;
    float mean[kChunk];
    load_mean(p, tile, own, count, mean);
    for (int32_t first = tile.first; first < tile.end; first += K::kDepth * together) {
      uint32_t words[K::kDepth][K::kWords];
#pragma unroll
      for (int i = 0; i < K::kDepth; ++i) {
        const int32_t row = first + before + i * together;
        load_chunk<K>(p, row_place(p.x_stride, tile, row) + own, row < readable ? count : 0,
                      words[i]);
      }
#pragma unroll
      for (int i = 0; i < K::kDepth; ++i) {
        body(first + before + i * together, own, count, words[i], mean);
      }
    }
  }
}

// The largest magnitude of a chunk that is finite, as its bits, which rise with it.
template <class K>
__device__ __forceinline__ uint32_t largest_of_chunk(const Tile& tile, int32_t row, int count,
                                                     const uint32_t (&words)[K::kWords],
                                                     const float (&mean)[kChunk]) {
  if (row >= tile.end || row >= tile.entry.in_use || count == 0) return 0;
  float largest = 0;  // fmaxf passes over NaN
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    largest = fmaxf(largest, fabsf(element<K>(words, i) - mean[i]));
  }
  if (__float_as_uint(largest) == kInfinity) {
    largest = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float one = fabsf(element<K>(words, i) - mean[i]);
      largest = fmaxf(largest, __float_as_uint(one) < kInfinity ? one : 0.0F);
    }
  }
  return __float_as_uint(largest);
}

__device__ __forceinline__ uint32_t largest_of_lanes(uint32_t value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffU, value, step);
    value = other > value ? other : value;
  }
  return value;
}

__device__ __forceinline__ float scale_of(const Params& p, uint32_t largest) {
  return fp8_scale(__uint_as_float(largest), p.e5m2 ? kLargestE5M2 : kLargestE4M3);
}

using attention::fp8_of, attention::kE4M3, attention::kE5M2;
using attention::Scale, attention::scale_and_reciprocal;

// y / scale, as a division rounds it. An infinity becomes NaN. Zeros keep their sign.
template <bool kTiny>
__device__ __forceinline__ float divide(float y, const Scale& by) {
  const uint32_t bits = __float_as_uint(y);
  float q = 0;
  if constexpr (kTiny) {
    q = (bits & kMagnitude) == kInfinity ? __uint_as_float(kMagnitude) : y / by.scale;
  } else {
    q = attention::quotient(y, by);
  }
  return __uint_as_float((__float_as_uint(q) & kMagnitude) | (bits & ~kMagnitude));
}

__device__ __forceinline__ uint32_t pack(const Params& p, const float (&q)[4],
                                         const float (&y)[4]) {
  if (!p.e5m2) {
    if constexpr (ptx::kHasE4m3Products) return ptx::pack_e4m3x4(q[0], q[1], q[2], q[3]);
  }
  uint32_t bytes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t byte = p.e5m2 ? fp8_of<kE5M2>(q[i]) : fp8_of<kE4M3>(q[i]);
    const uint32_t bits = __float_as_uint(y[i]);
    if (p.e5m2 && (bits & kMagnitude) == kInfinity) byte = 0x7CU | (bits >> 24 & 0x80U);
    bytes |= byte << 8 * i;
  }
  return bytes;
}

template <class K, bool kTiny>
__device__ __forceinline__ void convert_words(const Params& p, const uint32_t (&words)[K::kWords],
                                              const float (&mean)[kChunk], const Scale& scale,
                                              uint32_t (&out)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float y[4], q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[i] = element<K>(words, 4 * half + i) - mean[4 * half + i];
      q[i] = divide<kTiny>(y[i], scale);
    }
    out[half] = pack(p, q, y);
  }
}

// Rows that are not in use become 0.
template <class K>
__device__ __forceinline__ void convert_chunk(const Params& p, const Tile& tile, int32_t row,
                                              int column, int count,
                                              const uint32_t (&words)[K::kWords],
                                              const float (&mean)[kChunk], const Scale& scale) {
  if (row >= tile.end || row >= tile.entry.all || count == 0) return;
  uint32_t out[2] = {};
  if (row < tile.entry.in_use) {
    if (scale.scale < attention::kSmallestScale) {
      convert_words<K, true>(p, words, mean, scale, out);
    } else {
      convert_words<K, false>(p, words, mean, scale, out);
    }
  }
  uint8_t* const to = p.out + row_place(p.out_stride, tile, row) + column;
  if constexpr (K::kChunksAreWhole) {
    *reinterpret_cast<uint2*>(to) = make_uint2(out[0], out[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) to[i] = static_cast<uint8_t>(out[i / 4] >> 8 * (i % 4));
    }
  }
}

struct Groups {
  uint32_t largest[kMostGroups];
  Scale scale[kMostGroups];
};

// Groups begin with the tile.
template <class K>
__global__ void __launch_bounds__(kThreads, 3)
    quantize_tiles_kernel(const __grid_constant__ Params p) {
  auto& groups = ptx::static_shared<Groups>();
  const Tile tile = find_tile(p);
  const int thread = static_cast<int>(threadIdx.x);
  const int count_of_groups = (tile.end - tile.first + p.block - 1) / p.block;
  if (thread < count_of_groups) groups.largest[thread] = 0;
  __syncthreads();
  const auto group_of = [&](int32_t row) {
    return p.by_block.divide(static_cast<uint32_t>(row - tile.first));
  };
  each_chunk<K>(p, tile,
                [&](int32_t row, int, int count, const uint32_t(&words)[K::kWords],
                    const float(&mean)[kChunk]) {
                  const uint32_t largest =
                      largest_of_lanes(largest_of_chunk<K>(tile, row, count, words, mean), p.lanes);
                  if (thread % p.lanes == 0 && largest != 0) {
                    atomicMax(&groups.largest[group_of(row)], largest);
                  }
                });
  __syncthreads();
  if (thread < count_of_groups) {
    const float scale = scale_of(p, groups.largest[thread]);
    groups.scale[thread] = scale_and_reciprocal(scale);
    p.scale[scale_place(p, tile, tile.first / p.block + thread)] = scale;
  }
  __syncthreads();
  each_chunk<K>(p, tile,
                [&](int32_t row, int column, int count, const uint32_t(&words)[K::kWords],
                    const float(&mean)[kChunk]) {
                  const Scale scale = groups.scale[row < tile.end ? group_of(row) : 0];
                  convert_chunk<K>(p, tile, row, column, count, words, mean, scale);
                });
}

// A tile lies in one group.
template <class K>
__global__ void __launch_bounds__(kThreads, 3)
    find_largest_kernel(const __grid_constant__ Params p) {
  const Tile tile = find_tile(p);
  uint32_t largest = 0;
  each_chunk<K>(p, tile,
                [&](int32_t row, int, int count, const uint32_t(&words)[K::kWords],
                    const float(&mean)[kChunk]) {
                  const uint32_t found = largest_of_chunk<K>(tile, row, count, words, mean);
                  largest = found > largest ? found : largest;
                });
  largest = largest_of_lanes(largest, 32);
  if (threadIdx.x % 32 != 0 || largest == 0) return;
  atomicMax(reinterpret_cast<uint32_t*>(p.scale) + scale_place(p, tile, tile.first / p.block),
            largest);
}

template <class K>
__global__ void __launch_bounds__(kThreads, 3)
    convert_rows_kernel(const __grid_constant__ Params p) {
  const Tile tile = find_tile(p);
  if (tile.first >= tile.entry.all) return;
  const Scale scale = scale_and_reciprocal(
      scale_of(p, __float_as_uint(p.scale[scale_place(p, tile, tile.first / p.block)])));
  each_chunk<K>(p, tile,
                [&](int32_t row, int column, int count, const uint32_t(&words)[K::kWords],
                    const float(&mean)[kChunk]) {
                  convert_chunk<K>(p, tile, row, column, count, words, mean, scale);
                });
}

// Scales become 0, or, where they are largest magnitudes, scales.
__global__ void __launch_bounds__(kThreads)
    scales_kernel(const __grid_constant__ Params p, bool finish) {
  const int64_t heads = p.scale_heads, blocks = p.scale_blocks;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.scale_batches * heads * blocks) return;
  float& scale =
      p.scale[at / (heads * blocks) * p.scale_stride.batch +
              at / blocks % heads * p.scale_stride.head + at % blocks * p.scale_stride.row];
  scale = finish ? scale_of(p, __float_as_uint(scale)) : 0.0F;
}

constexpr int kMeanRows = kMeanThreads / 2;  // at once

struct MeanSums {
  double sum[kMeanRows][kMeanColumns];
};

// A block has 16 channels of a head: two threads per row, sums in fp64, then all rows' sums in a tree.
template <class K>
__global__ void __launch_bounds__(kMeanThreads, 2)
    find_means_kernel(const __grid_constant__ Params p) {
  auto& sums = ptx::static_shared<MeanSums>();
  const auto strips = static_cast<uint32_t>((p.head_dim + kMeanColumns - 1) / kMeanColumns);
  const uint32_t strip = blockIdx.x % strips, rest = blockIdx.x / strips;
  const auto heads = static_cast<uint32_t>(p.heads);
  Tile tile{static_cast<int32_t>(rest / heads), static_cast<int32_t>(rest % heads), 0, 0, {}};
  tile.entry = find_entry(p, tile.batch);
  const int half = static_cast<int>(threadIdx.x) % 2, before = static_cast<int>(threadIdx.x) / 2;
  const int column = static_cast<int>(strip) * kMeanColumns + half * kChunk;
  const int left = p.head_dim - column;
  const int count = left < 0 ? 0 : left < kChunk ? left : kChunk;
  double sum[kChunk] = {};
#pragma unroll 4
  for (int32_t row = before; row < (count > 0 ? tile.entry.in_use : 0); row += kMeanRows) {
    uint32_t words[K::kWords];
    load_chunk<K>(p, row_place(p.x_stride, tile, row) + column, count, words);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float x = element<K>(words, i);
      const bool finite = (__float_as_uint(x) & kMagnitude) < kInfinity;
      sum[i] += static_cast<double>(finite ? x : 0.0F);
    }
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) sums.sum[before][half * kChunk + i] = sum[i];
  for (int step = kMeanRows / 2; step > 0; step /= 2) {
    __syncthreads();
    if (before >= step) continue;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      sums.sum[before][half * kChunk + i] += sums.sum[before + step][half * kChunk + i];
    }
  }
  if (before != 0) return;
  const auto rows = static_cast<double>(tile.entry.in_use > 0 ? tile.entry.in_use : 1);
  float* const mean = p.mean + tile.batch * p.mean_batch + tile.head * p.mean_head + column;
  for (int i = 0; i < count; ++i) {
    mean[i] = static_cast<float>(sums.sum[0][half * kChunk + i] / rows);
  }
}

}  // namespace flashcore::cuda::convert::quantize
