// Around forward_fp8_sm90: V^T before it, and rows one by one where it cannot run.
#pragma once

#include <cstdint>

#include "cuda/forward_fp8_sm90/throughput/exact_rows.cuh"
#include "cuda/forward_fp8_sm90/throughput/task.hpp"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

inline constexpr int kTransposeThreads = 256;
inline constexpr int kRowBytes = 128;  // of both tiles, whose rows are 16-byte chunks, swizzled

struct TransposeTiles {
  alignas(16) unsigned char values[kBlockKv * kRowBytes];  // [key][dimension]
  unsigned char transposed[kBlockKv * kRowBytes];          // [dimension][key]
};

__device__ __forceinline__ int chunk_place(int row, int swizzle, int chunk) {
  return row * kRowBytes + (chunk ^ (swizzle & 7)) * tile::kChunkBytes;
}

// A block of 128 keys of one head, transposed, with the keys of every 16 in the order of
// tile::fp8_key_of_slot. Keys past those in use become 0: whatever they hold is not to meet a
// probability. Matrices of 8 x 8 pairs of bytes are transposed by ldmatrix, then pairs of keys
// taken apart: a lane has dimensions 2 g and 2 g + 1 of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9.
template <int kHeadDim>
__device__ __forceinline__ void transpose_block(const Params& p, int block, int batch, int head) {
  auto& tiles = ptx::static_shared<TransposeTiles, 128>();
  constexpr int kChunks = kHeadDim / tile::kChunkBytes;  // of a key
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int len_kv = p.varies ? attention::find_entry(p, batch).len_kv : p.limits.len_kv;
  const int first = block * kBlockKv;
  if (first >= len_kv) return;  // nobody reads it
#pragma unroll
  for (int i = 0; i < kBlockKv * kChunks / kTransposeThreads; ++i) {
    const int at = thread + i * kTransposeThreads, key = at / kChunks, chunk = at % kChunks;
    uint4 values = make_uint4(0, 0, 0, 0);
    if (first + key < len_kv) {
      const uint8_t* const row = row_pointer(p.v, batch, head, first + key);
      values = *reinterpret_cast<const uint4*>(row + chunk * tile::kChunkBytes);
    }
    *reinterpret_cast<uint4*>(&tiles.values[chunk_place(key, key, chunk)]) = values;
  }
  __syncthreads();
  const uint32_t from = ptx::shared_address(tiles.values);
  const uint32_t to = ptx::shared_address(tiles.transposed);
#pragma unroll
  for (int i = 0; i < kChunks / 2; ++i) {
    const int unit = warp * (kChunks / 2) + i;
    const int dims = unit % kChunks, keys = unit / kChunks;  // 16 dimensions, 32 keys
    uint32_t x[4];
    ptx::ldmatrix_x4_trans(x,
                           from + static_cast<uint32_t>(chunk_place(32 * keys + lane, lane, dims)));
    const int dim = 16 * dims + 2 * (lane % 8) + lane / 8 % 2;
    ptx::stmatrix_x4(to + static_cast<uint32_t>(chunk_place(dim, dim / 2, 2 * keys + lane / 16)),
                     __byte_perm(x[0], x[1], 0x6420), __byte_perm(x[0], x[1], 0x7531),
                     __byte_perm(x[2], x[3], 0x6420), __byte_perm(x[2], x[3], 0x7531));
  }
  __syncthreads();
  uint8_t* const out =
      p.vt + (static_cast<int64_t>(batch) * p.heads_kv + head) * kHeadDim * p.vt_keys + first;
#pragma unroll
  for (int i = 0; i < kHeadDim * 8 / kTransposeThreads; ++i) {
    const int at = thread + i * kTransposeThreads, dim = at / 8, chunk = at % 8;
    *reinterpret_cast<uint4*>(out + static_cast<int64_t>(dim) * p.vt_keys +
                              chunk * tile::kChunkBytes) =
        *reinterpret_cast<const uint4*>(&tiles.transposed[chunk_place(dim, dim / 2, chunk)]);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kTransposeThreads)
    transpose_kernel(const __grid_constant__ Params p) {
  ptx::start_next_grid();
  const auto blocks = static_cast<uint32_t>(p.vt_keys / kBlockKv);
  const uint32_t head = blockIdx.x / blocks, heads = static_cast<uint32_t>(p.heads_kv);
  transpose_block<kHeadDim>(p, static_cast<int>(blockIdx.x - head * blocks),
                            static_cast<int>(head / heads), static_cast<int>(head % heads));
}

// 64 queries of one head, a warp for each 16.
template <int kConfigIndex, bool kVTransposed>
__global__ void __launch_bounds__(kWarpgroupThreads)
    exact_kernel(const __grid_constant__ Params p) {
  const Task task = find_tile(p, blockIdx.x, kWarpgroupRows);
  compute_rows_exactly<kConfigs[kConfigIndex].head_dim, kVTransposed>(
      p, task, static_cast<int>(threadIdx.x) / 32 * kWarpRows, static_cast<int>(threadIdx.x) % 32);
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
