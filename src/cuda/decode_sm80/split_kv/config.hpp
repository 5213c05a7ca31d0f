// The resource page of decode_sm80: which tile each head dimension gets, and what it costs.
//
//   a block: `warps` warps that share a unit of keys. A tile is 16 rows (queries times the heads of
//            a group), O of all head dimensions in registers, by `tile_keys` keys. Each warp has its
//            own ring of `stages` tiles of K and V, and waits for no other warp until a unit ends
//   wide rows: O does not fit the registers of a warp. `column_warps` warps share a ring, synchronise
//            at every tile, and divide the columns of O equally. Each of them computes the whole
//            product with K: the Tensor Cores have time, and scores need not be exchanged
//
//   shared memory   | Q in fragments | ring 0: K V stage 0 | K V stage 1 | ring 1: ... | scales |
//                                    | at the end of a unit: O of each ring, in fp32 ... |
//
// 64 KB of keys in flight per block, and two blocks per SM where it has the memory: what an H200
// needs to read at full speed (docs/decode.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/attention/first_config.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

inline constexpr int kTileRows = 16;  // of Q, one mma
inline constexpr int kCombineThreads =
    128;  // per joined row, or per 128 columns of a joined row that is wide
inline constexpr int kSmallSharedMemory = 99 * 1024;  // per block on sm_86 and sm_89
inline constexpr int kReservedSharedMemory = 1024;    // per block, by the runtime
inline constexpr int kLargestHeadDimQk = 576, kLargestHeadDimV = 512;
inline constexpr int kMostColumnsOfTwoTypes = 128;  // of K, if V has the other fp8 type

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  // The largest supported; smaller ones are padded with zeros.
  int head_dim_qk, head_dim_v;
  int kv_bytes;  // per element of K and V: 2, or 1 for fp8
  int warps = 4;
  int tile_keys;
  int stages = 2;
  bool q_in_registers = false;  // otherwise read from shared memory for every tile
  int blocks_per_sm = 2;        // sets the register limit
  int column_warps = 1;         // warps that share a ring
  bool reads_trees = false;     // tree masks
  bool reads_pairs = false;     // bias and masks of pairs

  constexpr int threads() const { return 32 * warps; }
  constexpr int rings() const { return warps / column_warps; }
  constexpr int warp_columns() const { return head_dim_v / column_warps; }  // of O
  constexpr int k_tile_bytes() const { return tile_keys * head_dim_qk * kv_bytes; }
  constexpr int v_tile_bytes() const { return tile_keys * head_dim_v * kv_bytes; }
  constexpr int stage_bytes() const { return k_tile_bytes() + v_tile_bytes(); }
  constexpr int ring_bytes() const { return stages * stage_bytes(); }
  constexpr int all_ring_bytes() const { return rings() * ring_bytes(); }
  constexpr int q_bytes() const { return 2 * kTileRows * head_dim_qk; }
  constexpr int scale_bytes() const {  // of K and of V
    return kv_bytes == 1 ? 2 * 4 * rings() * stages * tile_keys : 0;
  }
  constexpr int merge_bytes() const { return 4 * rings() * kTileRows * head_dim_v; }
  constexpr int smem_bytes() const { return q_bytes() + all_ring_bytes() + scale_bytes(); }
};

// Sorted by head dimension, for K and V of 16 bits and then of 8: without tree masks, ...
inline constexpr std::array kPlainConfigs = {
    Config{.head_dim_qk = 64,
           .head_dim_v = 64,
           .kv_bytes = 2,
           .tile_keys = 32,
           .q_in_registers = true},
    Config{.head_dim_qk = 128,
           .head_dim_v = 128,
           .kv_bytes = 2,
           .tile_keys = 16,
           .q_in_registers = true},
    Config{.head_dim_qk = 64,
           .head_dim_v = 64,
           .kv_bytes = 1,
           .tile_keys = 32,
           .stages = 4,
           .q_in_registers = true},
    Config{.head_dim_qk = 128, .head_dim_v = 128, .kv_bytes = 1, .tile_keys = 32},
};
// ... and longer rows, with tree masks and without.
inline constexpr std::array kWideConfigs = {
    Config{
        .head_dim_qk = 256, .head_dim_v = 256, .kv_bytes = 2, .tile_keys = 16, .column_warps = 2},
    Config{
        .head_dim_qk = 256, .head_dim_v = 256, .kv_bytes = 1, .tile_keys = 32, .column_warps = 2},
    // MLA's latent rows. fp8 rows are padded to whole panels of 128 bytes.
    Config{
        .head_dim_qk = 576, .head_dim_v = 512, .kv_bytes = 2, .tile_keys = 16, .column_warps = 4},
    Config{
        .head_dim_qk = 640, .head_dim_v = 512, .kv_bytes = 1, .tile_keys = 32, .column_warps = 4},
};

constexpr Config with_trees(Config config) {
  config.reads_trees = true;
  return config;
}

constexpr Config with_pairs(Config config) {
  config.reads_trees = config.reads_pairs = true;
  // The bias needs registers, and none are left for 32 keys of fp8.
  if (config.kv_bytes == 1 && config.column_warps == 1) {
    config.stages *= config.tile_keys / 16;
    config.tile_keys = 16;
  }
  return config;
}

// The compiled kernels. The first that supports a problem computes it. With bias or masks of pairs, there are
// only two row lengths, as each costs compilation time: shorter rows are padded, without reading the padding.
inline constexpr std::array kConfigs = {kPlainConfigs[0],
                                        kPlainConfigs[1],
                                        kPlainConfigs[2],
                                        kPlainConfigs[3],
                                        with_trees(kPlainConfigs[0]),
                                        with_trees(kPlainConfigs[1]),
                                        with_trees(kPlainConfigs[2]),
                                        with_trees(kPlainConfigs[3]),
                                        with_trees(kWideConfigs[0]),
                                        with_trees(kWideConfigs[1]),
                                        with_trees(kWideConfigs[2]),
                                        with_trees(kWideConfigs[3]),
                                        with_pairs(kPlainConfigs[1]),
                                        with_pairs(kPlainConfigs[3]),
                                        with_pairs(kWideConfigs[2]),
                                        with_pairs(kWideConfigs[3])};

// Returns an index into kConfigs, or -1 if a head dimension is too large.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int kv_bytes,
                            bool tree = false, bool pairs = false) {
  if (head_dim_qk > kLargestHeadDimQk) return -1;
  return attention::first_config(kConfigs, [&](const Config& c) {
    return kv_bytes == c.kv_bytes && head_dim_qk <= c.head_dim_qk && head_dim_v <= c.head_dim_v &&
           (!tree || c.reads_trees) && (!pairs || c.reads_pairs);
  });
}

// Returns the blocks per SM: one SM has hardly more shared memory than a block may have.
constexpr int blocks_per_sm(const Config& c, int64_t shared_memory_per_block) {
  const int64_t fit = shared_memory_per_block / (c.smem_bytes() + kReservedSharedMemory);
  return fit < 1 ? 1 : fit < c.blocks_per_sm ? static_cast<int>(fit) : c.blocks_per_sm;
}

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int k_chunks = c.head_dim_qk * c.kv_bytes / 16, v_chunks = c.head_dim_v * c.kv_bytes / 16;
  // A ring of one warp copies one or more whole rows at once.
  const bool copies = c.column_warps == 1
                          ? c.head_dim_qk == c.head_dim_v && k_chunks <= 32 && 32 % k_chunks == 0 &&
                                c.tile_keys % (32 / k_chunks) == 0
                          : c.tile_keys * k_chunks % (32 * c.column_warps) == 0 &&
                                c.tile_keys * v_chunks % (32 * c.column_warps) == 0 &&
                                c.warp_columns() * c.kv_bytes % 128 == 0;
  return copies && c.warps % c.column_warps == 0 && c.head_dim_qk >= c.head_dim_v &&
         c.head_dim_qk % 32 == 0 && c.head_dim_v % 32 == 0 &&
         (c.tile_keys == 16 || c.tile_keys == 32) && c.k_tile_bytes() % 1024 == 0 &&
         c.v_tile_bytes() % 1024 == 0 && c.q_bytes() % 1024 == 0 &&
         c.merge_bytes() <= c.all_ring_bytes() &&
         c.smem_bytes() + kReservedSharedMemory <= kSmallSharedMemory;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));

}  // namespace flashcore::cuda::decode_sm80::split_kv
