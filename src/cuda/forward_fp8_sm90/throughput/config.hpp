// The resource page of forward_fp8_sm90: the tile of each head dimension and what it costs.
//
//   a block: one producer warpgroup (one thread of it copies) and `consumers` warpgroups of 64
//            query rows each; one block per SM, which takes tile after tile
//
//   shared memory   | Q, two slots | K ring | V^T ring | O, fp32 | barriers, tasks |
//
// V^T is followed by eight rows of ones: the product then also
// returns the sums of the rounded P, in additional columns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/attention/first_config.hpp"
#include "cuda/attention/fp8/params.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupRows = 64;         // rows of one wgmma
inline constexpr int kSharedMemory = 227 * 1024;  // at most per block
inline constexpr int kBarrierBytes = 2 * 1024;    // at most, for barriers and tasks
inline constexpr int kScoreBytes = 8;             // per thread, with options

using namespace attention::fp8;  // what forward_fp8_sm89 has, too

// A structural type: the single template argument that describes a kernel's geometry.
struct Config {
  int head_dim;    // of Q and K
  int head_dim_v;  // of the part of V that a tile has
  int consumers = 2;
  int block_kv = 128;  // keys per step: per tile of K and V^T
  int q_slots = 2, k_stages, v_stages;
  int flush_blocks = 8;      // KV blocks per group: see consumer.cuh
  bool spares_sums = false;  // sums P before rounding only if requested
  bool options = false;      // instances with options: OptionParams

  constexpr int threads() const { return kWarpgroupThreads * (consumers + 1); }
  constexpr int block_q() const { return kWarpgroupRows * consumers; }
  constexpr int q_bytes() const { return kWarpgroupRows * head_dim; }  // per consumer
  constexpr int k_bytes() const { return block_kv * head_dim; }
  // The product needs eight; tiles are multiples of 1 KiB.
  constexpr int ones_rows() const { return 1024 / block_kv; }
  constexpr int v_bytes() const { return block_kv * (head_dim_v + ones_rows()); }
  constexpr int o_bytes() const { return 4 * kWarpgroupRows * head_dim_v; }  // per consumer
  constexpr int tile_bytes() const {
    return consumers * (q_slots * q_bytes() + o_bytes()) + k_stages * k_bytes() +
           v_stages * v_bytes();
  }

  constexpr int shared_bytes() const {
    return tile_bytes() + kBarrierBytes +
           (options ? kScoreBytes * consumers * kWarpgroupThreads : 0);
  }

  // Registers per thread, out of those that the launch allocates: see ptx::release_registers.
  // With options, the producer, which finds tiles, needs more.
  constexpr int producer_registers() const { return options ? 40 : consumers == 3 ? 32 : 24; }
  constexpr int consumer_registers() const { return options ? 232 : consumers == 3 ? 160 : 240; }

  // Registers that a consumer thread always holds: S, O with its ones, and P.
  constexpr int held_registers() const { return block_kv / 2 + head_dim_v / 2 + 4 + block_kv / 8; }
};

inline constexpr std::array kConfigs = {
    Config{.head_dim = 64, .head_dim_v = 64, .consumers = 3, .k_stages = 4, .v_stages = 4},
    Config{.head_dim = 128, .head_dim_v = 128, .k_stages = 3, .v_stages = 3},
    Config{.head_dim = 128,
           .head_dim_v = 128,
           .consumers = 3,
           .block_kv = 64,
           .k_stages = 4,
           .v_stages = 5,
           .flush_blocks = 16,
           .spares_sums = true}};

// For instances with options (OptionParams). Narrower heads are treated as if padded with
// columns of zeros, and V wider than head_dim_v is split into parts, each a tile of its own.
inline constexpr std::array kOptionConfigs = {Config{.head_dim = 64,
                                                     .head_dim_v = 64,
                                                     .k_stages = 4,
                                                     .v_stages = 4,
                                                     .spares_sums = true,
                                                     .options = true},
                                              Config{.head_dim = 128,
                                                     .head_dim_v = 128,
                                                     .k_stages = 3,
                                                     .v_stages = 3,
                                                     .spares_sums = true,
                                                     .options = true},
                                              Config{.head_dim = 256,
                                                     .head_dim_v = 128,
                                                     .q_slots = 1,
                                                     .k_stages = 2,
                                                     .v_stages = 3,
                                                     .spares_sums = true,
                                                     .options = true}};
inline constexpr int kHeadDimStep = 16;  // granularity of head dimensions, for row copies

// Returns an index into kOptionConfigs, or -1.
constexpr int choose_option_config(int64_t head_dim_qk, int64_t head_dim_v) {
  if (head_dim_qk < kHeadDimStep || head_dim_v < kHeadDimStep) return -1;
  if (head_dim_qk % kHeadDimStep != 0 || head_dim_v % kHeadDimStep != 0) return -1;
  return attention::first_config(kOptionConfigs, [&](const Config& c) {
    return head_dim_qk <= c.head_dim && head_dim_v <= c.head_dim;
  });
}

// Returns the share of rows in use among all rows that a GPU's blocks compute: the
// last round may have few blocks, and the last query tile of a head few queries.
constexpr double used_share(const Config& config, int64_t queries, int64_t heads, int sms) {
  const int64_t tiles = heads * ((queries + config.block_q() - 1) / config.block_q());
  const int64_t rounds = (tiles + sms - 1) / sms;
  return tiles == 0 ? 1
                    : static_cast<double>(heads * queries) /
                          static_cast<double>(rounds * sms * config.block_q());
}

inline constexpr int k192x64 = 2;  // in kConfigs; each of the others has its own head dimension
constexpr bool takes_head_dim(int64_t head_dim) { return head_dim == 64 || head_dim == 128; }
constexpr int choose_config(int64_t head_dim) { return head_dim == 64 ? 0 : 1; }

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int allocated = 65536 / c.threads() / 8 * 8 * c.threads();
  const int wanted =
      kWarpgroupThreads * (c.producer_registers() + c.consumers * c.consumer_registers());
  return c.shared_bytes() <= kSharedMemory && wanted <= allocated &&
         c.held_registers() + 24 <= c.consumer_registers() && c.k_stages >= 2 && c.v_stages >= 2;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));
static_assert(std::ranges::all_of(kOptionConfigs, is_sound));

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
