// The unit of work of forward_sm80_latency, as its plan decides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/forward_sm80/latency/config.hpp"
#include "kernel/query_tiles.hpp"
#include "kernel/work_unit.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm80::latency {

// shared_memory: the limit per block in bytes. Two blocks of
// the smaller kind share one SM if it has enough for both.
constexpr WorkUnit work_unit(const ForwardProblem& p, int64_t multiprocessors,
                             int64_t shared_memory) {
  const bool one_wave = units_of(p, kBlockQ) <= multiprocessors;
  const int index =
      choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv, one_wave, shared_memory);
  const Config& config = kConfigs[static_cast<std::size_t>(std::max(index, 0))];
  const bool two = 2 * (config.smem_bytes() + static_bytes(config)) <= shared_memory;
  return {.tile = "forward_sm80_latency",
          .block_q = kBlockQ,
          .group_q = kBlockQ,
          .step_keys = config.pass_keys(),
          .units_at_once = two ? 2 : 1,
          .most_at_once = config.warps == kConfigs[0].warps ? 1 : 2};
}

}  // namespace flashcore::cuda::forward_sm80::latency
