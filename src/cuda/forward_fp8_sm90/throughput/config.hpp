// The resource page of forward_fp8_sm90: the tile of each head dimension and what it costs.
//
//   a block: one producer warpgroup (one thread of it copies) and `consumers` warpgroups, each with
//            64 query rows; one block per SM, which takes tile after tile
//
//   shared memory   | Q, two slots | K ring | V^T ring | O, fp32 | barriers, tasks |
//
// V^T has eight rows of ones behind it: the sums of P as it was rounded come out of the product as
// columns of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flashcore::cuda::forward_fp8_sm90::throughput {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupRows = 64;         // what one wgmma computes
inline constexpr int kWarpRows = 16;              // of them, a warp's
inline constexpr int kBlockKv = 128;              // keys of a step: V^T's rows are 128 bytes
inline constexpr int kOnesRows = 8;               // the least that a product has
inline constexpr int kSharedMemory = 227 * 1024;  // that a block may have
inline constexpr int kBarrierBytes = 2 * 1024;    // at most, for barriers and tasks

// A tile of so few keys has P in two terms: rounding errors of few probabilities do not average out.
inline constexpr int kFewKeys = 256;

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;
  int consumers;
  int q_slots, k_stages, v_stages;
  int flush_blocks;  // so many blocks of keys are a group: consumer.cuh
  bool ping_pong;    // consumers take turns at starting products

  constexpr int threads() const { return kWarpgroupThreads * (consumers + 1); }
  constexpr int block_q() const { return kWarpgroupRows * consumers; }
  constexpr int q_bytes() const { return kWarpgroupRows * head_dim; }  // of one consumer
  constexpr int k_bytes() const { return kBlockKv * head_dim; }
  constexpr int v_bytes() const { return kBlockKv * (head_dim + kOnesRows); }
  constexpr int o_bytes() const { return 4 * kWarpgroupRows * head_dim; }  // of one consumer
  constexpr int tile_bytes() const {
    return consumers * (q_slots * q_bytes() + o_bytes()) + k_stages * k_bytes() +
           v_stages * v_bytes();
  }

  // Of what the launch allocates: see ptx::release_registers.
  constexpr int producer_registers() const { return consumers == 3 ? 32 : 24; }
  constexpr int consumer_registers() const { return consumers == 3 ? 160 : 240; }

  // What a consumer thread holds all the time: S, O with its ones, and P.
  constexpr int held_registers() const { return kBlockKv / 2 + head_dim / 2 + 4 + kBlockKv / 8; }
};

inline constexpr std::array kConfigs = {Config{.head_dim = 64,
                                               .consumers = 3,
                                               .q_slots = 2,
                                               .k_stages = 4,
                                               .v_stages = 4,
                                               .flush_blocks = 8,
                                               .ping_pong = false},
                                        Config{.head_dim = 128,
                                               .consumers = 2,
                                               .q_slots = 2,
                                               .k_stages = 3,
                                               .v_stages = 3,
                                               .flush_blocks = 8,
                                               .ping_pong = false}};

// Index into kConfigs, or -1: only these head dimensions are computed.
constexpr int choose_config(int64_t head_dim) {
  for (std::size_t i = 0; i < kConfigs.size(); ++i) {
    if (head_dim == kConfigs[i].head_dim) return static_cast<int>(i);
  }
  return -1;
}

// What the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int allocated = 65536 / c.threads() / 8 * 8 * c.threads();
  const int wanted =
      kWarpgroupThreads * (c.producer_registers() + c.consumers * c.consumer_registers());
  return c.tile_bytes() + kBarrierBytes <= kSharedMemory && wanted <= allocated &&
         c.held_registers() + 24 <= c.consumer_registers() && c.k_stages >= 2 && c.v_stages >= 2;
}
static_assert([] {
  for (const Config& config : kConfigs) {
    if (!is_sound(config)) return false;
  }
  return true;
}());

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
