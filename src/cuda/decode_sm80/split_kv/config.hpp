// The resource page of decode_sm80: which tile each head dimension gets, and what it costs.
//
//   a block: `warps` warps that share a unit of keys. A tile is 16 rows (queries times the heads of
//            a group), O of all head dimensions in registers, by `tile_keys` keys. Each warp has a
//            ring of its own, of `stages` tiles of K and V, and waits for nobody until a unit ends
//
//   shared memory   | Q in fragments | warp 0: K V stage 0 | K V stage 1 | warp 1: ... | scales |
//                                    | where a unit ends: O of each warp, in fp32 ... |
//
// 64 KB of keys in flight a block, and two blocks on an SM where it has the memory: what an H200
// needs to read at full speed (docs/decode-sm80.md).
#pragma once

#include <array>
#include <cstdint>

namespace flashcore::cuda::decode_sm80::split_kv {

inline constexpr int kTileRows = 16;                  // of Q, one mma
inline constexpr int kSmallSharedMemory = 99 * 1024;  // a block's limit on sm_86 and sm_89
inline constexpr int kReservedSharedMemory = 1024;    // of each block, by the runtime
inline constexpr int kLargestHeadDim = 128;           // O of 256 columns leaves too few registers

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;  // the largest that it computes; smaller ones are padded with zeros
  int kv_bytes;  // of an element of K and V: 2, or 1 for fp8
  int warps;
  int tile_keys;
  int stages;
  bool q_in_registers;  // otherwise read again from shared memory for every tile
  int blocks_per_sm;    // what the register limit is set for

  constexpr int threads() const { return 32 * warps; }
  constexpr int tile_bytes() const { return tile_keys * head_dim * kv_bytes; }  // of K, or of V
  constexpr int warp_ring_bytes() const { return 2 * stages * tile_bytes(); }
  constexpr int ring_bytes() const { return warps * warp_ring_bytes(); }
  constexpr int q_bytes() const { return 2 * kTileRows * head_dim; }
  constexpr int scale_bytes() const {  // of K and of V
    return kv_bytes == 1 ? 2 * 4 * warps * stages * tile_keys : 0;
  }
  constexpr int merge_bytes() const { return 4 * warps * kTileRows * head_dim; }
  constexpr int smem_bytes() const { return q_bytes() + ring_bytes() + scale_bytes(); }
};

// By head dimension, for K and V of 16 bits and then of 8.
inline constexpr std::array kConfigs = {
    Config{.head_dim = 64,
           .kv_bytes = 2,
           .warps = 4,
           .tile_keys = 32,
           .stages = 2,
           .q_in_registers = true,
           .blocks_per_sm = 2},
    Config{.head_dim = 128,
           .kv_bytes = 2,
           .warps = 4,
           .tile_keys = 16,
           .stages = 2,
           .q_in_registers = true,
           .blocks_per_sm = 2},
    Config{.head_dim = 64,
           .kv_bytes = 1,
           .warps = 4,
           .tile_keys = 32,
           .stages = 4,
           .q_in_registers = true,
           .blocks_per_sm = 2},
    Config{.head_dim = 128,
           .kv_bytes = 1,
           .warps = 4,
           .tile_keys = 32,
           .stages = 2,
           .q_in_registers = false,
           .blocks_per_sm = 2},
};

// Index into kConfigs, or -1 when a head dimension is too large.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v, int kv_bytes) {
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    if (kv_bytes == kConfigs[i].kv_bytes && head_dim_qk <= kConfigs[i].head_dim &&
        head_dim_v <= kConfigs[i].head_dim) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// Blocks that run on an SM together: an SM has hardly more shared memory than a block may have.
constexpr int blocks_on_sm(const Config& c, int64_t shared_memory_a_block) {
  const int64_t fit = shared_memory_a_block / (c.smem_bytes() + kReservedSharedMemory);
  return fit < 1 ? 1 : fit < c.blocks_per_sm ? static_cast<int>(fit) : c.blocks_per_sm;
}

// What the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int row_bytes = c.head_dim * c.kv_bytes;
  const int row_chunks = row_bytes / 16;
  return c.head_dim % 32 == 0 && (c.tile_keys == 16 || c.tile_keys == 32) && row_chunks <= 32 &&
         32 % row_chunks == 0 && c.tile_keys % (32 / row_chunks) == 0 &&
         c.tile_bytes() % 1024 == 0 && c.q_bytes() % 1024 == 0 &&
         c.merge_bytes() <= c.ring_bytes() &&
         c.smem_bytes() + kReservedSharedMemory <= kSmallSharedMemory;
}
static_assert([] {
  for (const Config& config : kConfigs) {
    if (!is_sound(config)) return false;
  }
  return true;
}());

}  // namespace flashcore::cuda::decode_sm80::split_kv
