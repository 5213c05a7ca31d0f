// The unit of work of forward_sm90_latency, as its plan decides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/forward_sm90/latency/config.hpp"
#include "kernel/query_tiles.hpp"
#include "kernel/work_unit.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90::latency {

// Returns the largest number of blocks per SM at this head dimension, for any cluster size.
constexpr int most_blocks(int head_dim) {
  int most = 0;
  for (const Config& one : kConfigs) {
    if (one.head_dim == head_dim) most = std::max(most, one.blocks);
  }
  return most;
}

constexpr WorkUnit work_unit(const ForwardProblem& p, int64_t multiprocessors) {
  const bool one_wave = fits_twice(p, kBlockQ, multiprocessors);
  const int index = choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv, one_wave);
  const Config& config = kConfigs[static_cast<std::size_t>(std::max(index, 0))];
  return {.tile = "forward_sm90_latency",
          .block_q = kBlockQ,
          .group_q = kBlockQ,
          .step_keys = int64_t{config.ranks} * kGroups * kBlockKv,
          .sms = config.ranks,
          .units_at_once = config.blocks,
          .most_at_once = most_blocks(config.head_dim)};
}

}  // namespace flashcore::cuda::forward_sm90::latency
