// The resource page of backward_sm90: tiles, registers and shared memory of its compiled kernels.
//
//   a block: 128 keys of a head; one producer warpgroup (one thread of it copies) and two consumer
//            warpgroups of 64 keys, which visit the blocks of queries that see them
//
//   shared memory   | K | V | Q, two stages | dO, two stages | dS | sums of dQ, staged | row statistics |
//
// Keys are the rows of all products, S^T = K Q^T and dP^T = V dO^T, so that P^T and dS^T are left
// operands of dV and dK from registers. One accumulator holds S^T, dP^T and dQ^T in succession, and an
// array of half its size P^T, then dS^T: this leaves registers for 96 queries at head dimension 128.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/attention/first_config.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupKeys = 64;  // rows of one wgmma
inline constexpr int kConsumers = 2;       // warpgroups
inline constexpr int kConsumerWarps = kConsumers * kWarpgroupWarps;
inline constexpr int kThreads = kWarpgroupThreads * (kConsumers + 1);
inline constexpr int kBlockKeys = kWarpgroupKeys * kConsumers;
inline constexpr int kStages = 2;                             // of Q, and of dO
inline constexpr int kSteps = 4;                              // kept descriptions (schedule.hpp)
inline constexpr int kPanelColumns = 64;                      // 128 bytes, the widest swizzle
inline constexpr int kProducerRegisters = 24;                 // of what the launch allocates:
inline constexpr int kConsumerRegisters = 240;                // see ptx::release_registers
inline constexpr int kSharedMemory = 227 * 1024;              // that a block may have
inline constexpr int kSharedMemoryOther = 1024;               // at most, for barriers and steps
inline constexpr int kPairAlignment = 1024, kPairOther = 48;  // bytes of their place
inline constexpr int kSumsFloats = 4;                         // of a product of dQ^T, in a lane
inline constexpr int kSumsBytes = 32 * kSumsFloats * 4;       // and in a warp
// What a block of finish.cuh goes through: blocks of queries, then tiles of keys.
inline constexpr int kItems = 32;

// A structural type: the one template argument that a kernel's geometry is.
struct Config {
  int head_dim;
  int block_q;  // queries of a step
  // The number of a warp's products of dQ^T, 8 queries each, that go
  // through shared memory, all at the same time; there is no room for more.
  int bulk_products;
  // True if instances with options have registers for a softcap: its slopes, in addition to P.
  // These alone have instances with pairs (common/pairs.hpp).
  bool caps;

  constexpr int k_bytes() const { return 2 * kBlockKeys * head_dim; }  // and of V
  constexpr int q_bytes() const { return 2 * block_q * head_dim; }     // and of dO
  constexpr int ds_bytes() const { return 2 * block_q * kBlockKeys; }
  constexpr int row_stats_bytes() const { return 8 * block_q; }
  // dQ^T has head_dim rows, 64 per consumer; with head dimension
  // 64, both consumers have all rows, for half of the queries each.
  constexpr bool splits_queries() const { return head_dim == kWarpgroupKeys; }
  constexpr int dq_queries() const { return splits_queries() ? block_q / kConsumers : block_q; }
  constexpr int dq_products() const { return dq_queries() / 8; }  // per warp
  constexpr int shared_bytes() const {
    return 2 * k_bytes() + 2 * kStages * q_bytes() + ds_bytes() +
           kConsumerWarps * bulk_products * kSumsBytes + kStages * row_stats_bytes() +
           kSharedMemoryOther;
  }
  constexpr int block_sums() const { return block_q * head_dim; }  // elements of dQ per block
  // With pairs also what a step has of a bias and of a mask's bits, behind the rest. There is room for
  // a bias of 32 bits where steps are of 64 queries.
  constexpr bool has_wide_bias() const { return block_q <= 64; }
  constexpr int bias_bytes() const { return (has_wide_bias() ? 4 : 2) * block_q * kBlockKeys; }
  constexpr int bits_bytes() const { return block_q / 32 * kBlockKeys * 4; }
  constexpr int pair_shared_bytes() const {
    return shared_bytes() + kPairAlignment + bias_bytes() + bits_bytes() + kPairOther;
  }

  // Registers that a consumer thread always holds: the accumulator, P, dK and dV, and slopes.
  constexpr int held_registers() const {
    return block_q / 2 + block_q / 4 + head_dim + (caps ? block_q / 4 : 0);
  }
};

inline constexpr std::array kConfigs = {
    Config{.head_dim = 64, .block_q = 128, .bulk_products = 8, .caps = true},
    Config{.head_dim = 128, .block_q = 96, .bulk_products = 10, .caps = false},
    Config{.head_dim = 128, .block_q = 64, .bulk_products = 8, .caps = true},
};
// The first of them also have instances without options.
inline constexpr int kPlainConfigs = 2;

// Returns the first config that holds the larger head dimension of Q and V, as an index into kConfigs, or -1.
// `slopes`: it has registers for them; a softcap needs these, and so do pairs.
constexpr int config_index(int64_t head_dim, bool slopes) {
  return attention::first_config(
      kConfigs, [&](const Config& c) { return head_dim <= c.head_dim && (c.caps || !slopes); });
}

// Returns the query and dim, in a block of dQ, of element e of product n in lane `lane`
// of consumer warp `warp`. The sums are stored in register order:
// [warp][product][lane][e].
struct SumPlace {
  int query, dim;
};
constexpr SumPlace sum_place(const Config& config, int warp, int product, int lane, int e) {
  const int group = warp / kWarpgroupWarps, row = 16 * (warp % kWarpgroupWarps) + lane / 4;
  const int column = 8 * product + 2 * (lane % 4);
  const bool split = config.splits_queries();
  return {(split ? group * config.dq_queries() : 0) + column + e % 2,
          (split ? 0 : group * kWarpgroupKeys) + row + 8 * (e / 2)};
}

// Checks what the kernels rely on.
constexpr bool is_sound(const Config& c) {
  const int allocated = 65536 / kThreads / 8 * 8 * kThreads;
  const int wanted = kWarpgroupThreads * (kProducerRegisters + kConsumers * kConsumerRegisters);
  return c.head_dim % kPanelColumns == 0 && c.block_q % 16 == 0 &&
         c.bulk_products <= c.dq_products() && c.shared_bytes() <= kSharedMemory &&
         (!c.caps || (c.pair_shared_bytes() <= kSharedMemory && c.block_q % 32 == 0)) &&
         wanted <= allocated && c.held_registers() + 32 <= kConsumerRegisters;
}
static_assert(std::ranges::all_of(kConfigs, is_sound));

}  // namespace flashcore::cuda::backward_sm90::throughput
