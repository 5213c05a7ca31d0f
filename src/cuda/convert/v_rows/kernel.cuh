// V stored transposed becomes V in rows. A block has 128 keys and 64 dimensions of one head:
//
//   global, rows of dimensions  ->  shared, rows of keys  ->  global, rows of keys, 16 dimensions per thread
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/entry.hpp"
#include "cuda/convert/v_rows/params.hpp"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/fragment.hpp"
#include "cuda/tile/v_tile.hpp"

namespace flashcore::cuda::convert::v_rows {

using Tile = tile::VTile;
constexpr int kColumns = Tile::kColumns, kDims = Tile::kDims, kChunk = Tile::kChunk;
constexpr int kGroups = Tile::kGroups;

struct Block {
  const uint8_t* v;  // of its first dimension and column
  uint8_t* rows;     // of its first key and dimension
  int keys, dims;    // that there are
};

__device__ __forceinline__ Block find_block(const Params& p, uint32_t index) {
  const uint32_t dim_block = index % p.dim_blocks, rest = index / p.dim_blocks;
  const uint32_t column_block = rest % p.column_blocks, batch_head = rest / p.column_blocks;
  const auto head = static_cast<int64_t>(batch_head % static_cast<uint32_t>(p.heads_kv));
  const auto batch = static_cast<int64_t>(batch_head / static_cast<uint32_t>(p.heads_kv));
  const int64_t key = int64_t{column_block} * kColumns, dim = int64_t{dim_block} * kDims;
  const int in_use = p.seqlens_kv.data == nullptr
                         ? p.seqlen_kv
                         : attention::clamped(p.seqlens_kv.at(batch), 0, p.seqlen_kv);
  const bool is_read = key < int64_t{in_use} + kTileRows;
  const auto* const v = static_cast<const uint8_t*>(p.v.data);
  return {v + batch * p.v.batch + head * p.v.head + dim * p.v.row + key,
          p.rows + (int64_t{batch_head} * p.seqlen_kv + key) * p.pitch + dim,
          is_read ? static_cast<int>(min(int64_t{kColumns}, p.seqlen_kv - key)) : 0,
          static_cast<int>(min(int64_t{kDims}, p.head_dim_v - dim))};
}

// Bytes of 16 columns of one dimension go to their keys.
__device__ __forceinline__ void scatter(Tile& tile, int group, int dim, const uint32_t (&x)[4]) {
#pragma unroll
  for (int slot = 0; slot < kChunk; ++slot) {
    const int key = kChunk * group + tile::fp8_key_of_slot(slot);
    tile.values[Tile::place_of(key) + dim] =
        static_cast<unsigned char>(x[slot / 4] >> slot % 4 * 8);
  }
}

__device__ __forceinline__ void load_columns(const Params& p, const Block& block, Tile& tile) {
  for (int at = static_cast<int>(threadIdx.x); at < kDims * kGroups; at += kThreads) {
    const int dim = at / kGroups, group = at % kGroups;
    const uint8_t* const from = block.v + dim * p.v.row + group * kChunk;
    uint32_t x[4] = {0, 0, 0, 0};
    if (dim < block.dims && p.in_chunks) {
      const uint4 chunk = *reinterpret_cast<const uint4*>(from);
      x[0] = chunk.x;
      x[1] = chunk.y;
      x[2] = chunk.z;
      x[3] = chunk.w;
    } else if (dim < block.dims) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) x[i / 4] |= uint32_t{from[i]} << i % 4 * 8;
    }
    scatter(tile, group, dim, x);
  }
}

// Dimensions past the last, up to the pitch, are 0.
__device__ __forceinline__ void store_rows(const Params& p, const Block& block, const Tile& tile) {
  constexpr int kChunks = kDims / kChunk;
  for (int at = static_cast<int>(threadIdx.x); at < block.keys * kChunks; at += kThreads) {
    const int key = at / kChunks, dim = at % kChunks * kChunk;
    if (dim >= block.dims) continue;
    const auto* const from =
        reinterpret_cast<const uint32_t*>(&tile.values[Tile::place_of(key) + dim]);
    const uint4 chunk = make_uint4(from[0], from[1], from[2], from[3]);
    *reinterpret_cast<uint4*>(block.rows + key * p.pitch + dim) = chunk;
  }
}

__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ Params p) {
  auto& tile = ptx::static_shared<Tile, 16>();
  const Block block = find_block(p, blockIdx.x);
  if (block.keys <= 0) return;
  load_columns(p, block, tile);
  __syncthreads();
  store_rows(p, block, tile);
}

}  // namespace flashcore::cuda::convert::v_rows
