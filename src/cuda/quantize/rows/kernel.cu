// Quantisation on a GPU, bound by memory: an element is read once where its group lies in a tile (tokens,
// short blocks), and twice otherwise, the second time from L2 if it fits.
//
//   groups in tiles:  | tile: largest magnitudes -> shared memory | scales | the tile again: convert |
//   larger groups:    | scales = 0 | largest magnitudes -> scales | convert | scales |
//
// Threads of a tile: `lanes` of them beside each other in a row, eight elements each, then the next rows.
// The scale of a larger group is its largest magnitude until all rows are converted: so nothing is
// needed beside the outputs. A maximum and a sum of fixed parts do not depend on the order of blocks.
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/quantize/rows/encode.hpp"
#include "cuda/quantize/rows/launch.hpp"
#include "problem/fp8_scale.hpp"

namespace flashcore::cuda::quantize::rows {
namespace {

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

// Rows [first, end) of an entry and head.
struct Tile {
  int32_t batch = 0, head = 0, first = 0, end = 0;
  Entry entry;
};

__device__ __forceinline__ Tile find_tile(const Params& p) {
  const auto tiles = static_cast<uint32_t>(p.tiles), heads = static_cast<uint32_t>(p.heads);
  // Heads are innermost: they lie beside each other where rows are [.., rows, heads, width].
  const uint32_t head = blockIdx.x % heads, rest = blockIdx.x / heads;
  const auto tile = static_cast<int32_t>(rest % tiles);
  Tile out{static_cast<int32_t>(rest / tiles), static_cast<int32_t>(head), 0, 0, {}};
  const int64_t span = int64_t{tile / p.tiles_a_span} * p.span;
  const int64_t first = span + int64_t{tile % p.tiles_a_span} * p.tile_rows;
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

// Eight elements at `at`, of which `count` exist; the others are 0.
__device__ __forceinline__ void load_chunk(const Params& p, int64_t at, int count,
                                           float (&y)[kChunk]) {
  if (p.input == Input::f32) {
    const float* const from = static_cast<const float*>(p.x) + at;
    if (p.wide_loads && count == kChunk) {
      const float4 a = reinterpret_cast<const float4*>(from)[0];
      const float4 b = reinterpret_cast<const float4*>(from)[1];
      y[0] = a.x, y[1] = a.y, y[2] = a.z, y[3] = a.w;
      y[4] = b.x, y[5] = b.y, y[6] = b.z, y[7] = b.w;
      return;
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) y[i] = i < count ? from[i] : 0.0F;
    return;
  }
  const uint16_t* const from = static_cast<const uint16_t*>(p.x) + at;
  uint32_t pairs[kChunk / 2] = {};
  if (p.wide_loads && count == kChunk) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    pairs[0] = all.x, pairs[1] = all.y, pairs[2] = all.z, pairs[3] = all.w;
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) pairs[i / 2] |= uint32_t{from[i]} << 16 * (i % 2);
    }
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const auto bits = static_cast<uint16_t>(pairs[i / 2] >> 16 * (i % 2));
    y[i] = p.input == Input::f16 ? ptx::f16_to_float(bits) : ptx::bf16_to_float(bits);
  }
}

__device__ __forceinline__ void load_mean(const Params& p, const Tile& tile, int column, int count,
                                          float (&mean)[kChunk]) {
  const int64_t at = tile.batch * p.mean_batch + tile.head * p.mean_head + column;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    mean[i] = p.mean != nullptr && i < count ? p.mean[at + i] : 0.0F;
  }
}

__device__ __forceinline__ int64_t row_place(const Strides& stride, const Tile& tile, int32_t row) {
  return tile.batch * stride.batch + tile.head * stride.head +
         (tile.entry.begin + row) * stride.row;
}

// Calls body(row, column, count, mean) for this thread's chunks of the tile. All threads of a warp make
// the same calls: a row from tile.end on is none of the tile's, and a column may have no element.
template <class Body>
__device__ __forceinline__ void each_chunk(const Params& p, const Tile& tile, const Body& body) {
  const int lane = static_cast<int>(threadIdx.x) % p.lanes;
  const int before = static_cast<int>(threadIdx.x) / p.lanes, together = kThreads / p.lanes;
  for (int column = 0; column < p.head_dim; column += kChunk * p.lanes) {
    const int own = column + kChunk * lane, left = p.head_dim - own;
    const int count = left < 0 ? 0 : left < kChunk ? left : kChunk;
    float mean[kChunk];
    load_mean(p, tile, own, count, mean);
    for (int32_t row = tile.first; row < tile.end; row += together) {
      body(row + before, own, count, mean);
    }
  }
}

// The largest magnitude of a chunk that is finite, as its bits, which rise with it.
__device__ __forceinline__ uint32_t largest_of_chunk(const Params& p, const Tile& tile, int32_t row,
                                                     int column, int count,
                                                     const float (&mean)[kChunk]) {
  if (row >= tile.end || row >= tile.entry.in_use || count == 0) return 0;
  float y[kChunk];
  load_chunk(p, row_place(p.x_stride, tile, row) + column, count, y);
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const uint32_t bits = __float_as_uint(y[i] - mean[i]) & kMagnitude;
    if (bits < kInfinity && bits > largest) largest = bits;
  }
  return largest;
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

// y / scale, as a division rounds it: a quotient within one place, and a remainder that is exact, give
// the nearest number (Markstein, 1990). A remainder of tiny numbers is not exact: those are divided.
// An infinity becomes NaN. Zeros keep their sign.
__device__ __forceinline__ float quotient(float y, float scale, float reciprocal) {
  constexpr float kSmallestScale = 0x1p-80F;
  const uint32_t bits = __float_as_uint(y);
  float q = 0;
  if (scale < kSmallestScale) {
    q = (bits & kMagnitude) == kInfinity ? __uint_as_float(kMagnitude) : y / scale;
  } else {
    q = y * reciprocal;
    q = fmaf(fmaf(-q, scale, y), reciprocal, q);
    q = fmaf(fmaf(-q, scale, y), reciprocal, q);
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

__device__ __forceinline__ void convert_chunk(const Params& p, const Tile& tile, int32_t row,
                                              int column, int count, const float (&mean)[kChunk],
                                              float scale) {
  uint32_t words[2] = {};
  if (row < tile.entry.in_use) {
    const float reciprocal = 1.0F / scale;
    float y[kChunk];
    load_chunk(p, row_place(p.x_stride, tile, row) + column, count, y);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float part[4], q[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        part[i] = y[4 * half + i] - mean[4 * half + i];
        q[i] = quotient(part[i], scale, reciprocal);
      }
      words[half] = pack(p, q, part);
    }
  }
  uint8_t* const to = p.out + row_place(p.out_stride, tile, row) + column;
  if (p.wide_stores && count == kChunk) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (i < count) to[i] = static_cast<uint8_t>(words[i / 4] >> 8 * (i % 4));
  }
}

struct Groups {
  uint32_t largest[kMostGroups];
  float scale[kMostGroups];
};

// Groups begin with the tile.
__global__ void __launch_bounds__(kThreads)
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
  each_chunk(p, tile, [&](int32_t row, int column, int count, const float(&mean)[kChunk]) {
    const uint32_t largest =
        largest_of_lanes(largest_of_chunk(p, tile, row, column, count, mean), p.lanes);
    if (thread % p.lanes == 0 && largest != 0) atomicMax(&groups.largest[group_of(row)], largest);
  });
  __syncthreads();
  if (thread < count_of_groups) {
    const float scale = scale_of(p, groups.largest[thread]);
    groups.scale[thread] = scale;
    p.scale[scale_place(p, tile, tile.first / p.block + thread)] = scale;
  }
  __syncthreads();
  each_chunk(p, tile, [&](int32_t row, int column, int count, const float(&mean)[kChunk]) {
    if (row >= tile.end || row >= tile.entry.all || count == 0) return;
    convert_chunk(p, tile, row, column, count, mean, groups.scale[group_of(row)]);
  });
}

// A tile lies in one group.
__global__ void __launch_bounds__(kThreads) find_largest_kernel(const __grid_constant__ Params p) {
  const Tile tile = find_tile(p);
  uint32_t largest = 0;
  each_chunk(p, tile, [&](int32_t row, int column, int count, const float(&mean)[kChunk]) {
    const uint32_t found = largest_of_chunk(p, tile, row, column, count, mean);
    largest = found > largest ? found : largest;
  });
  largest = largest_of_lanes(largest, 32);
  if (threadIdx.x % 32 != 0 || largest == 0) return;
  atomicMax(reinterpret_cast<uint32_t*>(p.scale) + scale_place(p, tile, tile.first / p.block),
            largest);
}

__global__ void __launch_bounds__(kThreads) convert_rows_kernel(const __grid_constant__ Params p) {
  const Tile tile = find_tile(p);
  if (tile.first >= tile.entry.all) return;
  const float scale =
      scale_of(p, __float_as_uint(p.scale[scale_place(p, tile, tile.first / p.block)]));
  each_chunk(p, tile, [&](int32_t row, int column, int count, const float(&mean)[kChunk]) {
    if (row >= tile.end || row >= tile.entry.all || count == 0) return;
    convert_chunk(p, tile, row, column, count, mean, scale);
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

constexpr int kMeanColumns = 2 * kChunk;  // of a block: 32 bytes of 16-bit elements
constexpr int kMeanRows = kThreads / 2;   // at once

struct MeanSums {
  double sum[kMeanRows][kMeanColumns];
};

// A block has 16 channels of a head: two threads a row, sums in fp64, then those of all rows in a tree.
__global__ void __launch_bounds__(kThreads) find_means_kernel(const __grid_constant__ Params p) {
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
    float x[kChunk];
    load_chunk(p, row_place(p.x_stride, tile, row) + column, count, x);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const bool finite = (__float_as_uint(x[i]) & kMagnitude) < kInfinity;
      sum[i] += static_cast<double>(finite ? x[i] : 0.0F);
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

template <class... Arguments>
cudaError_t launch(void (*kernel)(Arguments...), int64_t blocks, cudaStream_t stream,
                   const std::type_identity_t<Arguments>&... arguments) {
  if (blocks == 0) return cudaSuccess;
  return host::launch_kernel(kernel,
                             {.grid = dim3(static_cast<unsigned int>(blocks)), .threads = kThreads},
                             stream, arguments...);
}

int64_t tiles_of(const Params& p) { return int64_t{p.tiles} * p.heads * p.batch; }

int64_t blocks_of_scales(const Params& p) {
  return (int64_t{p.scale_batches} * p.scale_heads * p.scale_blocks + kThreads - 1) / kThreads;
}

}  // namespace

cudaError_t find_means(const Params& params, cudaStream_t stream) {
  const int64_t strips = (params.head_dim + kMeanColumns - 1) / kMeanColumns;
  return launch(&find_means_kernel, strips * params.heads * params.batch, stream, params);
}
cudaError_t quantize_tiles(const Params& params, cudaStream_t stream) {
  return launch(&quantize_tiles_kernel, tiles_of(params), stream, params);
}
cudaError_t clear_scales(const Params& params, cudaStream_t stream) {
  return launch(&scales_kernel, blocks_of_scales(params), stream, params, false);
}
cudaError_t find_largest(const Params& params, cudaStream_t stream) {
  return launch(&find_largest_kernel, tiles_of(params), stream, params);
}
cudaError_t convert_rows(const Params& params, cudaStream_t stream) {
  return launch(&convert_rows_kernel, tiles_of(params), stream, params);
}
cudaError_t finish_scales(const Params& params, cudaStream_t stream) {
  return launch(&scales_kernel, blocks_of_scales(params), stream, params, true);
}

}  // namespace flashcore::cuda::quantize::rows
