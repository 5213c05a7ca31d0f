// Around forward_fp8_sm90 with options: largest values cleared and V^T before it, and rows one by one
// where it cannot run.
#pragma once

#include <cstdint>

#include "cuda/forward_fp8_sm90/throughput/option_rows.cuh"
#include "cuda/forward_fp8_sm90/throughput/rows.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

inline constexpr int kPieceChunks = kRowBytes / tile::kChunkBytes;

// Keys of one sequence from `first` on, in rows from `row` on; `count` of them are in use.
struct KeyBlock {
  int batch, first, count, row;
};

// Block `index` of V^T's keys: of a dense sequence, or of all packed ones (packed_tiles.hpp).
__device__ __forceinline__ KeyBlock find_block(const OptionParams& p, int batch, int index) {
  if (!p.packed) {
    const int len_kv = p.varies ? attention::find_entry(p, batch).len_kv : p.limits.len_kv;
    return {batch, index * kBlockKv, len_kv - index * kBlockKv, index * kBlockKv};
  }
  const attention::PackedTile tile = attention::find_packed_tile(
      index, p.batch, kBlockKv,
      [&](int entry) { return packed_row(p.cu_seqlens_kv, entry, p.total_kv); });
  const attention::Entry entry = attention::find_entry(p, tile.entry);
  const int64_t first = tile.tile * kBlockKv;
  if (first < 0 || first >= entry.len_kv) return {tile.entry, 0, 0, 0};
  const int key = static_cast<int>(first);
  return {tile.entry, key, entry.len_kv - key, entry.kv_row + key};
}

// As rows.cuh has it, of at most 128 dimensions from chunk `begin` on.
__device__ __forceinline__ void transpose_piece(const OptionParams& p, TransposeTiles& tiles,
                                                const KeyBlock& block, int head, int begin,
                                                int chunks, uint8_t* out) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int at = thread; at < kBlockKv * chunks; at += kTransposeThreads) {
    const int key = at / chunks, chunk = at - key * chunks;
    uint4 values = make_uint4(0, 0, 0, 0);
    if (key < block.count) {
      const uint8_t* const row = packed_row_pointer(p, p.v, block.batch, head, block.row + key);
      values = *reinterpret_cast<const uint4*>(row + (begin + chunk) * tile::kChunkBytes);
    }
    *reinterpret_cast<uint4*>(&tiles.values[chunk_place(key, key, chunk)]) = values;
  }
  __syncthreads();
  const uint32_t from = ptx::shared_address(tiles.values);
  const uint32_t to = ptx::shared_address(tiles.transposed);
  for (int unit = warp; unit < kBlockKv / 32 * chunks; unit += kTransposeThreads / 32) {
    const int keys = unit / chunks, dims = unit - keys * chunks;  // 16 dimensions, 32 keys
    uint32_t x[4];
    ptx::ldmatrix_x4_trans(x,
                           from + static_cast<uint32_t>(chunk_place(32 * keys + lane, lane, dims)));
    const int dim = 16 * dims + 2 * (lane % 8) + lane / 8 % 2;
    ptx::stmatrix_x4(to + static_cast<uint32_t>(chunk_place(dim, dim / 2, 2 * keys + lane / 16)),
                     __byte_perm(x[0], x[1], 0x6420), __byte_perm(x[0], x[1], 0x7531),
                     __byte_perm(x[2], x[3], 0x6420), __byte_perm(x[2], x[3], 0x7531));
  }
  __syncthreads();
  for (int at = thread; at < 16 * chunks * kPieceChunks; at += kTransposeThreads) {
    const int dim = at / kPieceChunks, chunk = at % kPieceChunks;
    *reinterpret_cast<uint4*>(out +
                              (static_cast<int64_t>(begin) * tile::kChunkBytes + dim) * p.vt_keys +
                              chunk * tile::kChunkBytes) =
        *reinterpret_cast<const uint4*>(&tiles.transposed[chunk_place(dim, dim / 2, chunk)]);
  }
}

__device__ __forceinline__ void clear(const LargestValues& values) {
  if (values.data == nullptr) return;
  const int64_t count = static_cast<int64_t>(values.batches) * values.heads;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    *values.at(i / values.heads, i % values.heads) = 0;
  }
}

__device__ __forceinline__ void clear_largest(const OptionParams& p) {
  clear(p.amax_o);
  clear(p.amax_s);
}

__global__ void __launch_bounds__(kTransposeThreads)
    option_transpose_kernel(const __grid_constant__ OptionParams p) {
  ptx::start_next_grid();
  if (blockIdx.x == 0) clear_largest(p);  // raised by those who have waited for V^T
  auto& tiles = ptx::static_shared<TransposeTiles, 128>();
  const auto blocks = static_cast<uint32_t>(p.vt_keys / kBlockKv);
  const auto heads = static_cast<uint32_t>(p.heads_kv);
  const uint32_t batch_head = blockIdx.x / blocks;
  const int head = static_cast<int>(batch_head % heads);
  const int index = static_cast<int>(blockIdx.x - batch_head * blocks);
  const KeyBlock block = find_block(p, static_cast<int>(batch_head / heads), index);
  if (block.count <= 0) return;  // nobody reads it
  uint8_t* const out = p.vt + static_cast<int64_t>(batch_head) * p.head_dim_v * p.vt_keys +
                       static_cast<int64_t>(index) * kBlockKv;
  const int all = p.head_dim_v / tile::kChunkBytes;
  for (int begin = 0; begin < all; begin += kPieceChunks) {
    if (begin > 0) __syncthreads();  // all have read the piece before
    transpose_piece(p, tiles, block, head, begin, min(all - begin, kPieceChunks), out);
  }
}

// 64 queries of one head and a part of V's columns, a warp for each 16 queries.
template <bool kE5M2>
__global__ void __launch_bounds__(kWarpgroupThreads)
    option_exact_kernel(const __grid_constant__ OptionParams p) {
  constexpr int kWidth = 128;
  const OptionTask task = find_option_tile(p, blockIdx.x, kWarpgroupRows, kWidth);
  if (!task.exists()) return;
  compute_option_rows<kE5M2, kWidth>(p, task, static_cast<int>(threadIdx.x) / 32 * kWarpRows,
                                     static_cast<int>(threadIdx.x) % 32);
}

__global__ void __launch_bounds__(kTransposeThreads)
    clear_largest_kernel(const __grid_constant__ OptionParams p) {
  clear_largest(p);
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
