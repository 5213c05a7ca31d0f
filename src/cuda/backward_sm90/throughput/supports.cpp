#include "cuda/backward_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::throughput {
namespace {

// Blocks of the largest launch, whose blocks are 256 numbers of Q each.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

std::string refuse_launches(const BackwardProblem& problem, const PlanContext&) {
  const ForwardProblem& p = problem.forward;
  const int index = config_index(std::max(p.head_dim_qk, p.head_dim_v), p.softcap > 0);
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

}  // namespace

BackwardSupports supports() {
  return but_not(common_supports({.most = kConfigs[kPlainConfigs - 1].head_dim,
                                  .step = kColumnStep,
                                  .least = kColumnStep}),
                 refuse_launches);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
