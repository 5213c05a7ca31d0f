// Determines which of forward_sm90_throughput's tiles hold a
// problem, whether tiles are uneven, and the unit of work.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "cuda/forward_sm90/throughput/config.hpp"
#include "kernel/work_unit.hpp"
#include "problem/entries.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::forward_sm90::throughput {

// Returns whether scores are transformed: such problems have instances of their own.
constexpr bool has_features(const ForwardProblem& p) {
  return p.softcap > 0 || !p.scale_is_positive();
}

// Returns whether scores are changed by what belongs to pairs: such problems have tiles of their own.
constexpr bool has_options(const ForwardProblem& p) {
  return p.bias.present || p.mask.present || p.alibi_slopes.present;
}

// Rows of kConfigs: those as narrow as the first one that holds the problem.
inline std::vector<int> tile_candidates(const ForwardProblem& p) {
  std::vector<int> rows;
  if (has_options(p)) return rows;
  const int first = choose_config(p.head_dim_qk, p.head_dim_v, has_features(p));
  if (first < 0) return rows;
  const Config& narrowest = kConfigs[static_cast<size_t>(first)];
  for (size_t i = static_cast<size_t>(first); i < kConfigs.size(); ++i) {
    const Config& c = kConfigs[i];
    if (c.head_dim_qk == narrowest.head_dim_qk && c.head_dim_v == narrowest.head_dim_v &&
        (has_features(p) ? c.features : c.plain)) {
      rows.push_back(static_cast<int>(i));
    }
  }
  return rows;
}

// Returns whether tiles differ in the keys that they see or in their rows: then they are
// handed out one by one.
constexpr bool is_uneven(const ForwardProblem& p, const Config& config) {
  return sees_unevenly(p) || p.seqlen_q % config.block_q() != 0;
}

// As a caller asks for it.
constexpr std::string_view tile_name(const Config& config) {
  if (config.block_q() == 192) return "forward_sm90_throughput:192x128";
  if (config.block_q() == 128) {
    return config.block_kv == 128   ? "forward_sm90_throughput:128x128"
           : config.block_kv == 112 ? "forward_sm90_throughput:128x112"
                                    : "forward_sm90_throughput:128x64";
  }
  return config.block_kv == 128 ? "forward_sm90_throughput:64x128"
                                : "forward_sm90_throughput:64x64";
}

constexpr WorkUnit work_unit(const Config& config) {
  return {.tile = tile_name(config),
          .block_q = config.block_q(),
          .group_q = kWarpgroupRows,
          .step_keys = config.block_kv,
          .units_at_once = config.blocks_per_sm,
          .most_at_once = config.blocks_per_sm};
}

}  // namespace flashcore::cuda::forward_sm90::throughput
