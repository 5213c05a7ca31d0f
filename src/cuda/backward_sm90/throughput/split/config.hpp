// The resource page of backward_sm90:split: the tiles of backward_sm90, each computed by a
// cluster of blocks that share its queries, for problems with too few tiles for the GPU.
//
//   block 0   | steps 0, 4, 8 .. | ready | dV of keys  0 ..  63 from all, stored |      a cluster of four
//   block 1   | steps 1, 5, 9 .. | ready | dV of keys 64 .. 127                  |
//   block 2   | steps 2, 6 ..    | ready | dK of keys  0 ..  63                  |
//   block 3   | steps 3, 7 ..    | ready | dK of keys 64 .. 127                  |
//
// Each block has sums of dK and dV over its own queries. At the end, each consumer sends every other block the
// sums that it stores, over its Q, dO and dS in shared memory, and adds received sums in the order of the blocks.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cuda/backward_sm90/throughput/config.hpp"

namespace flashcore::cuda::backward_sm90::split {

using throughput::Config, throughput::kConfigs, throughput::kConsumers,
    throughput::kWarpgroupThreads;

inline constexpr std::array kSplits = {2, 4};  // blocks per cluster
inline constexpr int kMostSplits = 4;
inline constexpr int kChunkBytes = 16;  // sent per thread at once

// Returns how many of its tile's `steps` block `rank` has: it begins with step `rank`
// and takes every splits-th. Under a causal mask, where all tiles see the last
// queries, the blocks of all tiles thus process the same queries at the same time.
constexpr int steps_of(int steps, int splits, int rank) {
  return (steps - rank + splits - 1) / splits;
}

enum class Sums : uint8_t { dv, dk };

// Returns the block that stores the sums of consumer `group`: of two blocks,
// one has dV and one dK, of both consumers; of four, each has one consumer's.
constexpr int owner_of(Sums sums, int group, int splits) {
  const int which = static_cast<int>(sums);
  return splits == kMostSplits ? kConsumers * which + group : which;
}
// The number of consumers that send a block sums, per other block.
constexpr int groups_sent(int splits) { return splits == kMostSplits ? 1 : kConsumers; }
// Returns the index of `rank` among the blocks that send to `owner`.
constexpr int sender_of(int rank, int owner) { return rank < owner ? rank : rank - 1; }

// Bytes that a consumer sends to a block, and that a block receives.
constexpr int sent_bytes(const Config& config) {
  return config.head_dim / 8 * kWarpgroupThreads * kChunkBytes;
}
constexpr int received_bytes(const Config& config, int splits) {
  return (splits - 1) * groups_sent(splits) * sent_bytes(config);
}
// Size of Q, dO and dS, which received sums overwrite.
constexpr int room_bytes(const Config& config) {
  return 2 * throughput::kStages * config.q_bytes() + config.ds_bytes();
}
static_assert([] {
  for (const Config& config : std::span(kConfigs).first(throughput::kPlainConfigs)) {
    for (const int splits : kSplits) {
      if (received_bytes(config, splits) > room_bytes(config)) return false;
    }
  }
  return true;
}());

// What a block takes besides its steps, in steps: a guess, as no GPU has measured all of them (docs/backward.md).
constexpr int kOwnSteps = 3;

// Returns the number of blocks per tile. `steps`: of the longest tile.
constexpr int fewest_steps(int64_t tiles, int64_t steps, int multiprocessors) {
  const auto cost = [&](int splits) {
    const int64_t waves = (tiles * splits + multiprocessors - 1) / multiprocessors;
    return waves * ((steps + splits - 1) / splits + kOwnSteps);
  };
  int best = kSplits.front();
  for (const int splits : kSplits) {
    if (cost(splits) < cost(best)) best = splits;
  }
  return best;
}

}  // namespace flashcore::cuda::backward_sm90::split
