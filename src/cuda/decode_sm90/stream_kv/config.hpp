// The resource page of decode_sm90: which tile each problem gets, and what it costs.
//
//   a block: eight warps that share a unit of keys, one block an SM. A tile is `row_tiles` times 8
//            rows (queries times the heads of a group) by `tile_keys` keys, keys first: S^T = K Q^T
//            and O^T = V^T P^T, so that 8 rows fill a product. Each warp has a ring of its own, of
//            `stages` tiles of K and V, and waits for nobody until a unit ends; its copies run on
//            into the block's next unit meanwhile.
//
//   shared memory   | warp 0: K V stage 0 | K V stage 1 | warp 1: ... | scales | O of each warp |
//
// 128 KB of keys in flight an SM: an H200 reads at its full speed from 64 KB on, and more only
// delays what else is read (docs/decode.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace flashcore::cuda::decode_sm90::stream_kv {

inline constexpr int kWarps = 8, kThreads = 32 * kWarps;
inline constexpr int kJoinThreads = 64;  // that the first kernel leaves room for, of the second
inline constexpr int kProductRows = 8;   // N of m16n8k16
inline constexpr int kLargestHeadDim = 128;
inline constexpr int kLargestSharedMemory = 227 * 1024;  // a block's limit on sm_90
inline constexpr int kStaticSharedMemory = 12 * 1024;    // of the list of entries, at most
inline constexpr int kPanelBytes = 128;                  // of a row, at most: the swizzle

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;   // the largest that it computes; smaller ones are padded with zeros
  int kv_bytes;   // of an element of K and V: 2, or 1 for fp8
  int row_tiles;  // of 8 rows
  int tile_keys;
  int stages;
  bool e5m2 = false;  // the type of fp8; otherwise e4m3

  // What the register limit is set for: with 8 rows there is room for blocks of join.cu, which are there
  // before this kernel ends.
  constexpr int bounded_threads() const {
    return row_tiles == 1 ? kThreads + kJoinThreads : kThreads;
  }
  constexpr int rows() const { return kProductRows * row_tiles; }
  // Blocks that read an H200's memory as fast as it goes, by what one reads alone. Those of fp8 and of more rows are bound
  // by what they compute: more are always faster.
  constexpr int filling_blocks() const {
    if (row_tiles > 1 || kv_bytes == 1) return std::numeric_limits<int>::max();
    return head_dim == kLargestHeadDim ? 56 : 80;
  }
  constexpr int tile_bytes() const { return tile_keys * head_dim * kv_bytes; }  // of K, or of V
  constexpr int warp_ring_bytes() const { return 2 * stages * tile_bytes(); }
  constexpr int ring_bytes() const { return kWarps * warp_ring_bytes(); }
  constexpr int warp_scales() const { return kv_bytes == 1 ? 2 * stages * tile_keys : 0; }
  constexpr int scale_bytes() const { return 4 * kWarps * warp_scales(); }
  constexpr int output_row() const { return head_dim + 4; }  // numbers; apart in banks
  constexpr int output_bytes() const { return 4 * kWarps * rows() * output_row(); }
  constexpr int smem_bytes() const { return ring_bytes() + scale_bytes() + output_bytes(); }
  // A row of a tile in shared memory: panels of columns.
  constexpr int panel_columns() const {
    const int row_bytes = head_dim * kv_bytes;
    return (row_bytes < kPanelBytes ? row_bytes : kPanelBytes) / kv_bytes;
  }
};

// By the type of fp8, then by rows, by the bytes of K and V, and by head dimension.
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

// Index into kConfigs, or -1 when a head dimension is too large. rows: of a key/value head.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int kv_bytes, bool e5m2,
                            int64_t rows) {
  const int row_tiles = rows <= kProductRows ? 1 : 2;
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    const Config& c = kConfigs[i];
    if (kv_bytes == c.kv_bytes && e5m2 == c.e5m2 && row_tiles == c.row_tiles &&
        head_dim_qk <= c.head_dim && head_dim_v <= c.head_dim) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// What the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int row_chunks = c.head_dim * c.kv_bytes / 16;
  return c.head_dim % 32 == 0 && (c.tile_keys == 16 || c.tile_keys == 32) && row_chunks <= 32 &&
         32 % row_chunks == 0 && c.tile_keys % (32 / row_chunks) == 0 &&
         c.tile_bytes() % 1024 == 0 && c.smem_bytes() + kStaticSharedMemory <= kLargestSharedMemory;
}
static_assert([] {
  for (const Config& config : kConfigs) {
    if (!is_sound(config)) return false;
  }
  return true;
}());

}  // namespace flashcore::cuda::decode_sm90::stream_kv
