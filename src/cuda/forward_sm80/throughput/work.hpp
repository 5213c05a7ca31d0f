// The unit of work of forward_sm80_throughput if keys are not split.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "kernel/work_unit.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// shared_memory: limit per block in bytes. The SM has 1 KB more, and each block takes 1 KB more.
constexpr WorkUnit work_unit(const ForwardProblem& p, int64_t shared_memory) {
  constexpr int64_t kOwn = 1024;
  const int index = choose_config(p.head_dim_qk, p.head_dim_v);
  const Config& config = kConfigs[static_cast<std::size_t>(std::max(index, 0))];
  const int64_t fit = (shared_memory + kOwn) / (config.smem_bytes() + kOwn);
  return {.tile = "forward_sm80_throughput",
          .block_q = config.block_q(),
          .group_q = config.block_q(),
          .step_keys = config.block_kv,
          .units_at_once = std::clamp<int64_t>(fit, 1, config.blocks_per_sm),
          .most_at_once = config.blocks_per_sm};
}

}  // namespace flashcore::cuda::forward_sm80::throughput
