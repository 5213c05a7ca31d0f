// The resource page of forward_fp8_sm89: the tile of each row length and what it costs.
//
//   a block: eight warps, each with 16 query rows and all of their O in registers; KV tiles in
//            a ring of two stages; also Q in shared memory
//
//   shared memory   | Q | K stage 0 | V stage 0 | K stage 1 | V stage 1 | work |
//
// Every block fits the 99 KB limit of sm_89.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/attention/first_config.hpp"
#include "cuda/attention/fp8/params.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

using namespace attention::fp8;  // what forward_fp8_sm90 has, too

inline constexpr int kWarps = 8;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kBlockQ = kWarps * kWarpRows;
inline constexpr int kStages = 2;
inline constexpr int kChunkBytes = 16;                // of a row: the size of one copy
inline constexpr int kSharedMemory = 99 * 1024;       // per block on sm_89
inline constexpr int kWorkBytes = 1024;               // at most, in addition to the tiles
inline constexpr int kSharedMemoryOfSm = 100 * 1024;  // each block takes 1 KB more

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim;       // largest row length of Q, K, V and O; shorter rows are padded with zeros
  int block_kv;       // keys per tile, which is a group: see attend.cuh
  int blocks_per_sm;  // sets the register limit

  constexpr int tile_bytes() const {
    return head_dim * (kBlockQ + kStages * 2 * block_kv);  // an element is a byte
  }
  constexpr int shared_bytes() const { return tile_bytes() + kWorkBytes; }
  // Registers that a thread always holds: S, O and P.
  constexpr int held_registers() const { return block_kv / 2 + head_dim / 2 + block_kv / 8; }
  constexpr int registers() const { return blocks_per_sm == 1 ? 255 : 65536 / (2 * kThreads); }
};

// In order of cost: the first that holds a problem's rows computes it.
inline constexpr std::array kConfigs = {
    Config{.head_dim = 64, .block_kv = 64, .blocks_per_sm = 2},
    Config{.head_dim = 128, .block_kv = 64, .blocks_per_sm = 1},
    Config{.head_dim = 256, .block_kv = 32, .blocks_per_sm = 1}};
inline constexpr int kLargestHeadDim = kConfigs.back().head_dim;

constexpr bool is_head_dim(int64_t head_dim) {
  return head_dim > 0 && head_dim <= kLargestHeadDim && head_dim % kChunkBytes == 0;
}

// Returns an index into kConfigs, or -1.
constexpr int choose_config(int64_t head_dim_qk, int64_t head_dim_v) {
  if (!is_head_dim(head_dim_qk) || !is_head_dim(head_dim_v)) return -1;
  return attention::first_config(kConfigs, [&](const Config& c) {
    return head_dim_qk <= c.head_dim && head_dim_v <= c.head_dim;
  });
}

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  return c.shared_bytes() <= kSharedMemory &&
         c.blocks_per_sm * (c.shared_bytes() + 1024) <= kSharedMemoryOfSm &&
         c.held_registers() + 48 <= c.registers() && c.head_dim % 64 == 0 && c.block_kv % 32 == 0;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
