// V in rows becomes V stored transposed. A block has 128 keys and 64 dimensions of one head:
//
//   global, rows of keys  ->  shared, as they are  ->  global, rows of dimensions, 16 keys per thread
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/convert/transpose_v/params.hpp"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/fragment.hpp"
#include "cuda/tile/v_tile.hpp"

namespace flashcore::cuda::convert::transpose_v {

using Tile = tile::VTile;
constexpr int kColumns = Tile::kColumns, kDims = Tile::kDims, kChunk = Tile::kChunk;
constexpr int kGroups = Tile::kGroups;

struct Block {
  const uint8_t* v;  // of its first key and dimension
  uint8_t* out;      // of its first dimension and column
  int keys, dims;    // that there are
};

__device__ __forceinline__ Block find_block(const Params& p, uint32_t index) {
  const uint32_t dim_block = index % p.dim_blocks, rest = index / p.dim_blocks;
  const uint32_t column_block = rest % p.column_blocks, batch_head = rest / p.column_blocks;
  const auto head = static_cast<int64_t>(batch_head % static_cast<uint32_t>(p.heads));
  const auto batch = static_cast<int64_t>(batch_head / static_cast<uint32_t>(p.heads));
  const int64_t key = int64_t{column_block} * kColumns, dim = int64_t{dim_block} * kDims;
  return {p.v + batch * p.v_at.batch + head * p.v_at.head + key * p.v_at.row + dim,
          p.out + batch * p.out_at.batch + head * p.out_at.head + dim * p.out_at.row + key,
          static_cast<int>(min(int64_t{kColumns}, p.rows - key)),
          static_cast<int>(min(int64_t{kDims}, p.head_dim - dim))};
}

__device__ __forceinline__ void load_chunks(const Params& p, const Block& block, Tile& tile) {
  constexpr int kChunks = kDims / kChunk;
  for (int at = static_cast<int>(threadIdx.x); at < kColumns * kChunks; at += kThreads) {
    const int key = at / kChunks, dim = at % kChunks * kChunk;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (key < block.keys && dim < block.dims) {
      x = *reinterpret_cast<const uint4*>(block.v + key * p.v_at.row + dim);
    }
    auto* const to = reinterpret_cast<uint32_t*>(&tile.values[Tile::place_of(key) + dim]);
    to[0] = x.x;
    to[1] = x.y;
    to[2] = x.z;
    to[3] = x.w;
  }
}

__device__ __forceinline__ void load_elements(const Params& p, const Block& block, Tile& tile) {
  for (int at = static_cast<int>(threadIdx.x); at < kColumns * kDims; at += kThreads) {
    const int key = at / kDims, dim = at % kDims;
    const bool exists = key < block.keys && dim < block.dims;
    tile.values[Tile::place_of(key) + dim] = exists ? block.v[key * p.v_at.row + dim] : uint8_t{0};
  }
}

// Columns 16 * group .. + 15 of a dimension, the first in the lowest byte.
__device__ __forceinline__ void gather(const Tile& tile, int group, int dim, uint32_t (&x)[4]) {
#pragma unroll
  for (int slot = 0; slot < kChunk; ++slot) {
    const int key = 16 * group + tile::fp8_key_of_slot(slot);
    const uint32_t value = tile.values[Tile::place_of(key) + dim];
    x[slot / 4] = slot % 4 == 0 ? value : x[slot / 4] | value << slot % 4 * 8;
  }
}

__device__ __forceinline__ void store_columns(const Params& p, const Block& block,
                                              const Tile& tile) {
  for (int at = static_cast<int>(threadIdx.x); at < block.dims * kGroups; at += kThreads) {
    const int dim = at / kGroups, group = at % kGroups;
    uint32_t x[4];
    gather(tile, group, dim, x);
    uint8_t* const to = block.out + dim * p.out_at.row + group * kChunk;
    if (p.out_chunks) {
      const uint4 chunk = make_uint4(x[0], x[1], x[2], x[3]);
      *reinterpret_cast<uint4*>(to) = chunk;
      continue;
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) to[i] = static_cast<uint8_t>(x[i / 4] >> i % 4 * 8);
  }
}

__global__ void __launch_bounds__(kThreads) transpose_kernel(const __grid_constant__ Params p) {
  auto& tile = ptx::static_shared<Tile, 16>();
  const Block block = find_block(p, blockIdx.x);
  if (p.in_chunks) {
    load_chunks(p, block, tile);
  } else {
    load_elements(p, block, tile);
  }
  __syncthreads();
  store_columns(p, block, tile);
}

}  // namespace flashcore::cuda::convert::transpose_v
