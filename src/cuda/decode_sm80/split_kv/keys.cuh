// A ring: the keys of its tiles, their addresses, and their copies. It belongs
// to one warp, or to several warps that copy alternating pieces of each tile.
//
// Each lane looks up one key of a tile, a tile ahead of its copies, so that these never wait
// for a load from the page table. The lanes that copy a row get its address by shuffles.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/decode/inputs.cuh"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/walk.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

template <Config kConfig>
using KTile = tile::SmemTile<kConfig.tile_keys, kConfig.head_dim_qk, kConfig.kv_bytes>;
template <Config kConfig>
using VTile = tile::SmemTile<kConfig.tile_keys, kConfig.head_dim_v, kConfig.kv_bytes>;

// A key's rows, as element offsets in K and V, and its scales.
struct Place {
  int64_t k, v;
  float k_scale, v_scale;
};

// The ring of this warp in the block, and the warp's index in the ring.
template <Config kConfig>
__device__ __forceinline__ int this_ring() {
  return static_cast<int>(threadIdx.x) / 32 / kConfig.column_warps;
}
template <Config kConfig>
__device__ __forceinline__ int this_member() {
  if constexpr (kConfig.column_warps == 1) return 0;
  return static_cast<int>(threadIdx.x) / 32 % kConfig.column_warps;
}

template <Config kConfig>
struct Ring {
  static constexpr bool kShared = kConfig.column_warps > 1;
  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr int kElementsPerChunk = 16 / kConfig.kv_bytes;

  const Params& p;
  const Unit& unit;
  unsigned char* tiles;
  float* scales;  // of K and of V, per stage
  int lane;

  __device__ unsigned char* k_tile(int stage) const {
    return tiles + stage * kConfig.stage_bytes();
  }
  __device__ unsigned char* v_tile(int stage) const {
    return k_tile(stage) + kConfig.k_tile_bytes();
  }
  __device__ float* k_scales(int stage) const { return scales + 2 * stage * kTileKeys; }
  __device__ float* v_scales(int stage) const { return k_scales(stage) + kTileKeys; }

  // Synchronises the ring's warps: afterwards, all may read what each has copied and waited for.
  __device__ void meet() const {
    if constexpr (kShared) {
      // A barrier index that is not constant would reserve all of a block's barriers.
      static_assert(kConfig.rings() <= 2);
      constexpr int kThreads = 32 * kConfig.column_warps;
      if (kConfig.rings() == 1 || this_ring<kConfig>() == 0) {
        ptx::named_barrier_sync(1, kThreads);
      } else {
        ptx::named_barrier_sync(2, kThreads);
      }
    } else {
      __syncwarp();
    }
  }

  // Looks up this lane's key of the tile that begins at `first`. Keys past the unit's are not looked up.
  __device__ Place find(int first) const {
    const int key = first + lane % kTileKeys;
    if (key >= unit.end) return {0, 0, 0, 0};
    const attention::decode::KeyPlace at = attention::decode::find_place<kConfig.kv_bytes == 1>(
        p, unit.at, unit.batch, unit.kv_head, key);
    return {at.lead * p.k.batch + unit.kv_head * p.k.head + at.row * p.k.row,
            at.lead * p.v.batch + unit.kv_head * p.v.head + at.row * p.v.row, at.k_scale,
            at.v_scale};
  }

  // Starts the copies of the tile that begins at `first`, and commits their group.
  __device__ void load(int stage, int first, const Place& place) const {
    if (first < unit.end) {
      if constexpr (kConfig.kv_bytes == 1) {
        if (p.scaled && lane < kTileKeys && this_member<kConfig>() == 0) {
          k_scales(stage)[lane] = place.k_scale;
          v_scales(stage)[lane] = place.v_scale;
        }
      }
      if (p.chunks) {
        if constexpr (kShared) {
          copy_pieces<KTile<kConfig>>(k_tile(stage), first, place.k, p.k.data, p.head_dim_qk);
          copy_pieces<VTile<kConfig>>(v_tile(stage), first, place.v, p.v.data, p.head_dim_v);
        } else {
          copy_rows(stage, first, place);
        }
      } else {
        copy_elements(stage, first, place);
      }
    }
    ptx::cp_async_commit();
  }

 private:
  __device__ void copy_rows(int stage, int first, const Place& place) const {
    using Tile = KTile<kConfig>;  // also V's
    constexpr int kRowsAtOnce = 32 / Tile::kRowChunks;
    const int chunk = lane % Tile::kRowChunks, lane_row = lane / Tile::kRowChunks;
    const int column = chunk * kElementsPerChunk;
    const bool in_k = column < p.head_dim_qk, in_v = column < p.head_dim_v;
#pragma unroll
    for (int i = 0; i < kTileKeys; i += kRowsAtOnce) {
      const int row = i + lane_row;
      const int64_t k = __shfl_sync(0xffffffffU, static_cast<long long>(place.k), row);
      const int64_t v = __shfl_sync(0xffffffffU, static_cast<long long>(place.v), row);
      const bool exists = first + row < unit.end;
      unsigned char* const to = k_tile(stage) + Tile::chunk_offset(row, chunk);
      copy_chunk(to, p.k.data, k + column, exists && in_k);
      copy_chunk(to + kConfig.k_tile_bytes(), p.v.data, v + column, exists && in_v);
    }
  }

  // Copies this warp's share of a tile of K or V: 32 chunks at once, for any row length.
  template <class Tile>
  __device__ void copy_pieces(unsigned char* tile, int first, int64_t place, const void* data,
                              int head_dim) const {
#pragma unroll 4
    for (int i = 0; i < kTileKeys * Tile::kRowChunks / 32; i += kConfig.column_warps) {
      const int piece = 32 * (i + this_member<kConfig>()) + lane;
      const int row = piece / Tile::kRowChunks, chunk = piece % Tile::kRowChunks;
      const int column = chunk * kElementsPerChunk;
      const int64_t at = __shfl_sync(0xffffffffU, static_cast<long long>(place), row) + column;
      copy_chunk(tile + Tile::chunk_offset(row, chunk), data, at,
                 first + row < unit.end && column < head_dim);
    }
  }

  // Copies 16 bytes from element `at` on, or zeros.
  __device__ void copy_chunk(unsigned char* to, const void* data, int64_t at, bool exists) const {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    ptx::cp_async_16(to, exists ? bytes + at * kConfig.kv_bytes : bytes, exists);
  }

  // Copies rows that are not aligned chunks, by ordinary loads.
  __device__ void copy_elements(int stage, int first, const Place& place) const {
#pragma unroll 1
    for (int row = this_member<kConfig>(); row < kTileKeys; row += kConfig.column_warps) {
      const int64_t k = __shfl_sync(0xffffffffU, static_cast<long long>(place.k), row);
      const int64_t v = __shfl_sync(0xffffffffU, static_cast<long long>(place.v), row);
      const bool exists = first + row < unit.end;
#pragma unroll 1
      for (int column = lane; column < kConfig.head_dim_qk; column += 32) {
        const uint32_t to = KTile<kConfig>::offset(row, column);
        copy_element(k_tile(stage) + to, p.k.data, k + column, exists && column < p.head_dim_qk);
        // A column has the same offset in a row of V, which may be shorter, as in a row of K: same panels.
        if (kConfig.head_dim_v < kConfig.head_dim_qk && column >= kConfig.head_dim_v) continue;
        copy_element(v_tile(stage) + to, p.v.data, v + column, exists && column < p.head_dim_v);
      }
    }
  }

  __device__ void copy_element(unsigned char* to, const void* data, int64_t at, bool exists) const {
    using Stored = std::conditional_t<kConfig.kv_bytes == 1, uint8_t, uint16_t>;
    *reinterpret_cast<Stored*>(to) =
        exists ? __ldg(static_cast<const Stored*>(data) + at) : Stored{0};
  }
};

}  // namespace flashcore::cuda::decode_sm80::split_kv
