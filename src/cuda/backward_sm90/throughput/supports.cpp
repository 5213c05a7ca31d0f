#include "cuda/backward_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::throughput {
namespace {

// Blocks of the largest launch, whose blocks are 256 numbers of Q each.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

constexpr HeadDims kHeadDims = {
    .most = kConfigs[kPlainConfigs - 1].head_dim, .step = kColumnStep, .least = kColumnStep};

std::string refuse_launches_of(const BackwardProblem& problem, int index) {
  const ForwardProblem& p = problem.forward;
  const Config& config = kConfigs[static_cast<size_t>(index)];
  const int64_t queries = query_rows(p, config.block_q);
  const int64_t chunks = product_of({p.heads_q, queries, config.head_dim / 8});
  const int64_t keys = product_of({p.heads_kv, key_rows(p, kBlockKeys)});
  // Launches have fewer blocks than a quarter of the chunks, and as many as tiles besides; zeros of a
  // packed batch take an eighth of a block per row.
  if (sum_of({chunks / 8, keys / (p.packed ? 8 : kBlockKeys)}) <= kMostBlocks) return {};
  return fmt::format("q: has {} sequences of {} heads and {} rows, wanted fewer in all", p.batch,
                     p.heads_q, p.seqlen_q);
}

std::string refuse_launches(const BackwardProblem& problem, const PlanContext&) {
  return refuse_launches_of(problem, config_of(problem.forward));
}

// Refuses masks of more blocks, and a dBias of more tiles, than a launch takes.
std::string refuse_options(const BackwardProblem& problem, const PlanContext&) {
  const ForwardProblem& p = problem.forward;
  const int64_t blocks =
      product_of({p.batch, p.heads_q, (p.seqlen_q + 127) / 128, (p.seqlen_kv + 127) / 128});
  if (p.mask.present && blocks > kMostBlocks) {
    return fmt::format("mask: has {} blocks of 128 queries and keys, wanted at most {}", blocks,
                       kMostBlocks);
  }
  if (const int64_t items = bias_items(problem); problem.d_bias.present && items > kMostBlocks) {
    return fmt::format("d_bias: makes {} tiles, wanted at most {}",
                       items == kTooLarge ? "too many" : std::to_string(items), kMostBlocks);
  }
  return refuse_launches_of(problem, pair_config_of(p));
}

}  // namespace

int config_of(const ForwardProblem& p) {
  return config_index(std::max(p.head_dim_qk, p.head_dim_v), p.softcap > 0);
}

int pair_config_of(const ForwardProblem& p) {
  const int index = config_index(std::max(p.head_dim_qk, p.head_dim_v), true);
  const bool is_wide = p.bias.present && p.bias.dtype == DType::f32;
  if (!is_wide || kConfigs[static_cast<size_t>(index)].has_wide_bias()) return index;
  return config_index(kConfigs.back().head_dim, true);
}

int64_t bias_items(const BackwardProblem& problem) {
  const int64_t* const extents = problem.d_bias_extents;
  return product_of({extents[0], extents[1], (extents[2] + kBlockKeys - 1) / kBlockKeys,
                     (extents[3] + kBlockKeys - 1) / kBlockKeys});
}

BackwardSupports supports() { return but_not(common_supports(kHeadDims), refuse_launches); }

BackwardSupports option_supports() {
  using enum Feature;
  BackwardSupports supports = common_supports(kHeadDims);
  supports.needs = Features{bias, mask, alibi_slopes, dropout};
  supports.features = (supports.features - Features{softcap}) | supports.needs | dropout_state;
  return but_not(supports, refuse_options);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
