// A warp's ring: which keys its tiles hold, where they lie, and their copies.
//
// Each lane looks one key of a tile up, a tile ahead of its copies, so that a load from the page
// table is never waited for. The lanes that copy a row get its place by shuffles.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/decode/inputs.cuh"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/walk.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

template <Config kConfig>
using KvTile = tile::SmemTile<kConfig.tile_keys, kConfig.head_dim, kConfig.kv_bytes>;

// A key's rows, in elements from the beginning of K and V, and its scales.
struct Place {
  int64_t k, v;
  float k_scale, v_scale;
};

template <Config kConfig>
struct Ring {
  using Tile = KvTile<kConfig>;
  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr int kStageBytes = 2 * kConfig.tile_bytes();
  static constexpr int kElementsAChunk = 16 / kConfig.kv_bytes;

  const Params& p;
  const Unit& unit;
  unsigned char* tiles;  // of this warp
  float* scales;         // of this warp: of K and of V, by stage
  int lane;

  __device__ unsigned char* k_tile(int stage) const { return tiles + stage * kStageBytes; }
  __device__ unsigned char* v_tile(int stage) const { return k_tile(stage) + kConfig.tile_bytes(); }
  __device__ float* k_scales(int stage) const { return scales + 2 * stage * kTileKeys; }
  __device__ float* v_scales(int stage) const { return k_scales(stage) + kTileKeys; }

  // Of this lane's key of the tile that begins at `first`. A key past the unit's is not looked up.
  __device__ Place find(int first) const {
    const int key = first + lane % kTileKeys;
    if (key >= unit.end) return {0, 0, 0, 0};
    const attention::decode::KeyPlace at = attention::decode::find_place<kConfig.kv_bytes == 1>(
        p, unit.at, unit.batch, unit.kv_head, key);
    return {at.lead * p.k.batch + unit.kv_head * p.k.head + at.row * p.k.row,
            at.lead * p.v.batch + unit.kv_head * p.v.head + at.row * p.v.row, at.k_scale,
            at.v_scale};
  }

  // Starts the copies of the tile that begins at `first`, and closes their group.
  __device__ void load(int stage, int first, const Place& place) const {
    if (first < unit.end) {
      if constexpr (kConfig.kv_bytes == 1) {
        if (p.scaled && lane < kTileKeys) {
          k_scales(stage)[lane] = place.k_scale;
          v_scales(stage)[lane] = place.v_scale;
        }
      }
      if (p.chunks) {
        copy_rows(stage, first, place);
      } else {
        copy_elements(stage, first, place);
      }
    }
    ptx::cp_async_commit();
  }

 private:
  __device__ void copy_rows(int stage, int first, const Place& place) const {
    constexpr int kRowsAtOnce = 32 / Tile::kRowChunks;
    const int chunk = lane % Tile::kRowChunks, lane_row = lane / Tile::kRowChunks;
    const int column = chunk * kElementsAChunk;
    const bool in_k = column < p.head_dim_qk, in_v = column < p.head_dim_v;
#pragma unroll
    for (int i = 0; i < kTileKeys; i += kRowsAtOnce) {
      const int row = i + lane_row;
      const int64_t k = __shfl_sync(0xffffffffU, static_cast<long long>(place.k), row);
      const int64_t v = __shfl_sync(0xffffffffU, static_cast<long long>(place.v), row);
      const bool exists = first + row < unit.end;
      unsigned char* const to = k_tile(stage) + Tile::chunk_offset(row, chunk);
      copy_chunk(to, p.k.data, k + column, exists && in_k);
      copy_chunk(to + kConfig.tile_bytes(), p.v.data, v + column, exists && in_v);
    }
  }

  // 16 bytes from element `at` on, or zeros.
  __device__ void copy_chunk(unsigned char* to, const void* data, int64_t at, bool exists) const {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    ptx::cp_async_16(to, exists ? bytes + at * kConfig.kv_bytes : bytes, exists);
  }

  // The same of rows that are not aligned chunks, by ordinary loads.
  __device__ void copy_elements(int stage, int first, const Place& place) const {
#pragma unroll 1
    for (int row = 0; row < kTileKeys; ++row) {
      const int64_t k = __shfl_sync(0xffffffffU, static_cast<long long>(place.k), row);
      const int64_t v = __shfl_sync(0xffffffffU, static_cast<long long>(place.v), row);
      const bool exists = first + row < unit.end;
#pragma unroll 1
      for (int column = lane; column < kConfig.head_dim; column += 32) {
        const uint32_t to = Tile::offset(row, column);
        copy_element(k_tile(stage) + to, p.k.data, k + column, exists && column < p.head_dim_qk);
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
