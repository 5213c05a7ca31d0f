// Around forward_fp8_sm90: largest values cleared and V^T before it, and rows one by one where it
// cannot run.
#pragma once

#include <cstdint>

#include "cuda/attention/fp8/exact_rows.cuh"
#include "cuda/forward_fp8_sm90/throughput/shape.cuh"
#include "cuda/forward_fp8_sm90/throughput/task.hpp"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/swizzle.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

inline constexpr int kTransposeThreads = 256;
inline constexpr int kRowBytes = 128;  // of both tiles, whose rows are 16-byte chunks, swizzled
inline constexpr int kPieceChunks = kRowBytes / tile::kChunkBytes;

struct TransposeTiles {
  alignas(16) unsigned char values[kBlockKv * kRowBytes];  // [key][dimension]
  unsigned char transposed[kBlockKv * kRowBytes];          // [dimension][key]
};

__device__ __forceinline__ int chunk_place(int row, int swizzle, int chunk) {
  return row * kRowBytes + (chunk ^ (swizzle & 7)) * tile::kChunkBytes;
}

// `count` keys of one sequence, in rows from `row` on.
struct KeyBlock {
  int batch, count, row;
};

// Block `index` of a sequence's keys.
__device__ __forceinline__ KeyBlock find_block(const Params& p, int batch, int index) {
  const int len_kv = p.varies ? attention::find_entry(p, batch).len_kv : p.limits.len_kv;
  return {batch, len_kv - index * kBlockKv, index * kBlockKv};
}
// With options, of a dense sequence, or of all packed ones (packed_tiles.hpp).
__device__ __forceinline__ KeyBlock find_block(const OptionParams& p, int batch, int index) {
  if (!p.packed) return find_block(static_cast<const Params&>(p), batch, index);
  const attention::PackedTile tile = attention::find_packed_tile(
      index, p.batch, kBlockKv,
      [&](int entry) { return packed_row(p.cu_seqlens_kv, entry, p.total_kv); });
  const attention::Entry entry = attention::find_entry(p, tile.entry);
  const int64_t first = tile.tile * kBlockKv;
  if (first < 0 || first >= entry.len_kv) return {0, 0, 0};
  const int key = static_cast<int>(first);
  return {0, entry.len_kv - key, entry.kv_row + key};
}

// Calls act(i) for every kStep-th i from `first` on, which is below kStep, to `count`. kCount: the same
// if it is known, else 0.
template <int kStep, int kCount, class Act>
__device__ __forceinline__ void for_every(int first, int count, const Act& act) {
  if constexpr (kCount == 0) {
    for (int i = first; i < count; i += kStep) act(i);
  } else {
    static_assert(kCount % kStep == 0);
#pragma unroll
    for (int i = 0; i < kCount; i += kStep) act(first + i);
  }
}

// A block of 128 keys of one head, transposed, with the keys of every 16 in the order of
// tile::fp8_key_of_slot. Keys past those in use become 0: whatever they hold is not to meet a
// probability. Matrices of 8 x 8 pairs of bytes are transposed by ldmatrix, then pairs of keys
// taken apart: a lane has dimensions 2 g and 2 g + 1 of keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9.
//
// `chunks`: of 16 dimensions each from chunk `begin` on, at most 8; kChunks: the same if known, else 0.
template <int kChunks>
__device__ __forceinline__ void transpose_piece(const Params& p, const KeyBlock& block, int head,
                                                int begin, int chunks, uint8_t* out) {
  auto& tiles = ptx::static_shared<TransposeTiles, 128>();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for_every<kTransposeThreads, kBlockKv * kChunks>(thread, kBlockKv * chunks, [&](int at) {
    const int key = at / chunks, chunk = at % chunks;
    uint4 values = make_uint4(0, 0, 0, 0);
    if (key < block.count) {
      const uint8_t* const row = row_pointer(p.v, block.batch, head, block.row + key);
      values = *reinterpret_cast<const uint4*>(row + (begin + chunk) * tile::kChunkBytes);
    }
    *reinterpret_cast<uint4*>(&tiles.values[chunk_place(key, key, chunk)]) = values;
  });
  __syncthreads();
  const uint32_t from = ptx::shared_address(tiles.values);
  const uint32_t to = ptx::shared_address(tiles.transposed);
  for_every<kTransposeThreads / 32, kBlockKv / 32 * kChunks>(
      warp, kBlockKv / 32 * chunks, [&](int unit) {
        const int keys = unit / chunks, dims = unit % chunks;  // 32 keys, 16 dimensions
        uint32_t x[4];
        ptx::ldmatrix_x4_trans(
            x, from + static_cast<uint32_t>(chunk_place(32 * keys + lane, lane, dims)));
        const int dim = 16 * dims + 2 * (lane % 8) + lane / 8 % 2;
        ptx::stmatrix_x4(
            to + static_cast<uint32_t>(chunk_place(dim, dim / 2, 2 * keys + lane / 16)),
            __byte_perm(x[0], x[1], 0x6420), __byte_perm(x[0], x[1], 0x7531),
            __byte_perm(x[2], x[3], 0x6420), __byte_perm(x[2], x[3], 0x7531));
      });
  __syncthreads();
  for_every<kTransposeThreads, kBlockKv * kChunks>(thread, kBlockKv * chunks, [&](int at) {
    const int dim = at / kPieceChunks, chunk = at % kPieceChunks;
    *reinterpret_cast<uint4*>(out + (begin * tile::kChunkBytes + int64_t{dim}) * p.vt_keys +
                              chunk * tile::kChunkBytes) =
        *reinterpret_cast<const uint4*>(&tiles.transposed[chunk_place(dim, dim / 2, chunk)]);
  });
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

// kHeadDim: of V; 0: any, with options.
template <int kHeadDim, class P>
__global__ void __launch_bounds__(kTransposeThreads) transpose_kernel(const __grid_constant__ P p) {
  ptx::start_next_grid();
  if constexpr (kHeadDim == 0) {
    if (blockIdx.x == 0) clear_largest(p);  // raised by those who have waited for V^T
  }
  const auto blocks = static_cast<uint32_t>(p.vt_keys / kBlockKv);
  const auto heads = static_cast<uint32_t>(p.heads_kv);
  const uint32_t batch_head = blockIdx.x / blocks;
  const int head = static_cast<int>(batch_head % heads);
  const int index = static_cast<int>(blockIdx.x - batch_head * blocks);
  const KeyBlock block = find_block(p, static_cast<int>(batch_head / heads), index);
  if (block.count <= 0) return;  // no one reads it
  const int head_dim = kHeadDim == 0 ? p.head_dim_v : kHeadDim;
  uint8_t* const out =
      p.vt + int64_t{batch_head} * head_dim * p.vt_keys + int64_t{index} * kBlockKv;
  constexpr int kChunks = kHeadDim / tile::kChunkBytes;
  if constexpr (kChunks > 0) return transpose_piece<kChunks>(p, block, head, 0, kChunks, out);
  const int chunks = head_dim / tile::kChunkBytes;
  for (int begin = 0; begin < chunks; begin += kPieceChunks) {
    if (begin > 0) __syncthreads();  // all have read the piece before
    transpose_piece<0>(p, block, head, begin, min(chunks - begin, kPieceChunks), out);
  }
}

// 64 queries of one head, and with options a part of V's columns: a warp for each 16 queries.
template <class S>
__global__ void __launch_bounds__(kWarpgroupThreads)
    exact_kernel(const __grid_constant__ typename S::Params p) {
  const typename S::Task task = find_tile(p, blockIdx.x, kWarpgroupRows, S::kConfig.head_dim_v);
  if constexpr (S::kOptions) {
    if (!task.exists()) return;
  }
  compute_rows_exactly<S>(p, task, static_cast<int>(threadIdx.x) / 32 * kWarpRows,
                          static_cast<int>(threadIdx.x) % 32);
}

template <class P>
__global__ void __launch_bounds__(kTransposeThreads)
    clear_largest_kernel(const __grid_constant__ P p) {
  clear_largest(p);
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
