// The resource page of decode_sm90: which tile each problem gets, and what it costs.
//
//   a block: eight warps that share a unit of keys, one block per SM. A tile is `row_tiles` times 8
//            rows (queries times the heads of a group) by `tile_keys` keys, keys first: S^T = K Q^T
//            and O^T = V^T P^T, so that 8 rows fill a product. Each warp has its own ring of `stages`
//            tiles of K and V, and waits for no other warp until a unit ends; meanwhile its copies
//            continue into the block's next unit.
//
//   shared memory   | warp 0: K V stage 0 | K V stage 1 | warp 1: ... | scales | O of each warp |
//
// 128 KB of keys in flight per SM: an H200 reads at its full speed from 64 KB on, and more only
// delays what else is read (docs/decode.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "cuda/attention/first_config.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

inline constexpr int kWarps = 8, kThreads = 32 * kWarps;
inline constexpr int kJoinThreads = 64;  // threads of the second kernel that fit next to the first
inline constexpr int kProductRows = 8;   // N of m16n8k16
inline constexpr int kLargestHeadDim = 128;
inline constexpr int kLargestSharedMemory = 227 * 1024;  // per block on sm_90
inline constexpr int kStaticSharedMemory = 12 * 1024;    // of the list of sequences, at most
inline constexpr int kPanelBytes = 128;                  // per row, at most: the swizzle

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim;   // the largest supported; smaller ones are padded with zeros
  int kv_bytes;   // per element of K and V: 2, or 1 for fp8
  int row_tiles;  // of 8 rows each
  int tile_keys;
  int stages;
  bool e5m2 = false;  // the fp8 type; otherwise e4m3

  // Sets the register limit: with 8 rows, it leaves room for
  // blocks of join.cuh, which are resident before this kernel ends.
  constexpr int bounded_threads() const {
    return row_tiles == 1 ? kThreads + kJoinThreads : kThreads;
  }
  constexpr int rows() const { return kProductRows * row_tiles; }
  // The number of blocks that read an H200's memory at full speed, from one block's own
  // speed. With fp8 or more rows, blocks are compute-bound: more are always faster.
  constexpr int filling_blocks() const {
    if (row_tiles > 1 || kv_bytes == 1) return std::numeric_limits<int>::max();
    return head_dim == kLargestHeadDim ? 56 : 80;
  }
  constexpr int tile_bytes() const { return tile_keys * head_dim * kv_bytes; }  // of K, or of V
  constexpr int warp_ring_bytes() const { return 2 * stages * tile_bytes(); }
  constexpr int ring_bytes() const { return kWarps * warp_ring_bytes(); }
  constexpr int warp_scales() const { return kv_bytes == 1 ? 2 * stages * tile_keys : 0; }
  constexpr int scale_bytes() const { return 4 * kWarps * warp_scales(); }
  constexpr int output_row() const { return head_dim + 4; }  // padded against bank conflicts
  constexpr int output_bytes() const { return 4 * kWarps * rows() * output_row(); }
  constexpr int smem_bytes() const { return ring_bytes() + scale_bytes() + output_bytes(); }
  // A row of a tile in shared memory consists of panels of columns.
  constexpr int panel_columns() const {
    const int row_bytes = head_dim * kv_bytes;
    return (row_bytes < kPanelBytes ? row_bytes : kPanelBytes) / kv_bytes;
  }
};

// Ordered by fp8 type, then by rows, by bytes of K and V, and by head dimension.
inline constexpr std::array kConfigs = {
    Config{.head_dim = 64, .kv_bytes = 2, .row_tiles = 1, .tile_keys = 32, .stages = 2},
    Config{.head_dim = 128, .kv_bytes = 2, .row_tiles = 1, .tile_keys = 16, .stages = 2},
    Config{.head_dim = 64, .kv_bytes = 1, .row_tiles = 1, .tile_keys = 32, .stages = 4},
    Config{.head_dim = 128, .kv_bytes = 1, .row_tiles = 1, .tile_keys = 32, .stages = 2},
    Config{.head_dim = 64, .kv_bytes = 2, .row_tiles = 2, .tile_keys = 32, .stages = 2},
    Config{.head_dim = 128, .kv_bytes = 2, .row_tiles = 2, .tile_keys = 16, .stages = 2},
    Config{.head_dim = 64, .kv_bytes = 1, .row_tiles = 2, .tile_keys = 32, .stages = 4},
    Config{.head_dim = 128, .kv_bytes = 1, .row_tiles = 2, .tile_keys = 32, .stages = 2},
    Config{
        .head_dim = 64, .kv_bytes = 1, .row_tiles = 1, .tile_keys = 32, .stages = 4, .e5m2 = true},
    Config{
        .head_dim = 128, .kv_bytes = 1, .row_tiles = 1, .tile_keys = 32, .stages = 2, .e5m2 = true},
    Config{
        .head_dim = 64, .kv_bytes = 1, .row_tiles = 2, .tile_keys = 32, .stages = 4, .e5m2 = true},
    Config{
        .head_dim = 128, .kv_bytes = 1, .row_tiles = 2, .tile_keys = 32, .stages = 2, .e5m2 = true},
};

// Returns an index into kConfigs, or -1 if a head dimension is too large. rows: per KV head.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int kv_bytes, bool e5m2,
                            int64_t rows) {
  const int row_tiles = rows <= kProductRows ? 1 : 2;
  return attention::first_config(kConfigs, [&](const Config& c) {
    return kv_bytes == c.kv_bytes && e5m2 == c.e5m2 && row_tiles == c.row_tiles &&
           head_dim_qk <= c.head_dim && head_dim_v <= c.head_dim;
  });
}

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int row_chunks = c.head_dim * c.kv_bytes / 16;
  return c.head_dim % 32 == 0 && (c.tile_keys == 16 || c.tile_keys == 32) && row_chunks <= 32 &&
         32 % row_chunks == 0 && c.tile_keys % (32 / row_chunks) == 0 &&
         c.tile_bytes() % 1024 == 0 && c.smem_bytes() + kStaticSharedMemory <= kLargestSharedMemory;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));

}  // namespace flashcore::cuda::decode_sm90::stream_kv
