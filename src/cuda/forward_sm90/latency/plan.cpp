#include "cuda/forward_sm90/latency/plan.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/common/mapped_plan.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/problem_for_heuristics.hpp"
#include "kernel/query_tiles.hpp"

namespace flashcore::cuda::forward_sm90::latency {
namespace {

constexpr std::string_view kName = "forward_sm90_latency";

std::string config_text(const Config& config) {
  return fmt::format("cluster={},blocks={}", config.ranks, config.blocks);
}

// Returns whether a row of kConfigs computes the problem: it has the head dimension, and is alone
// only where a block holds all keys.
bool serves(const Config& config, int own, const ForwardProblem& p) {
  return config.head_dim == kConfigs[static_cast<size_t>(own)].head_dim &&
         (config.ranks == 2 || p.seqlen_kv <= kMostKeysAlone);
}

// The row of kConfigs.
int config_of(const ForwardProblem& p, const PlanContext& context) {
  const ForwardProblem seen = problem_for_heuristics(p, context);
  const bool one_wave = fits_twice(seen, kBlockQ, context.device.multiprocessors);
  const int own = choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave);
  for (size_t row = 0; row < kConfigs.size() && !context.config.empty(); ++row) {
    const Config& config = kConfigs[row];
    if (serves(config, own, p) && config_text(config) == context.config)
      return static_cast<int>(row);
  }
  return own;
}

std::vector<std::string> candidates(const ForwardProblem& p, const PlanContext& context) {
  std::vector<std::string> names;
  const int own = config_of(p, context);
  for (const Config& config : kConfigs) {
    if (&config != &kConfigs[static_cast<size_t>(own)] && serves(config, own, p)) {
      names.push_back(config_text(config));
    }
  }
  return names;
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const int config = config_of(p, context);
  return plan_mapped(p, context,
                     {kName, kName, kBlockQ, kConfigs[static_cast<size_t>(config)].ranks,
                      fmt::format("small_{}_config{}_{}", launch::element_name(p.dtype), config,
                                  tile_bounds_name(tile_bounds_of(p)))});
}

}  // namespace

Variant variant() {
  Variant plain = mapped_variant(kName, build::targets::forward_sm90_latency, plan);
  plain.candidates = candidates;
  return plain;
}

}  // namespace flashcore::cuda::forward_sm90::latency
