#include "cuda/backward_sm90/wide/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/wide/config.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::wide {
namespace {

// Blocks of the largest launch.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

std::string refuse_narrow(const ForwardProblem& p) {
  // backward_sm90 has those, in tiles of their size.
  if (std::max(p.head_dim_qk, p.head_dim_v) <= kHeadDim / 2) {
    return fmt::format("q: head dimension is {} and v's is {}, wanted one of them above {}",
                       p.head_dim_qk, p.head_dim_v, kHeadDim / 2);
  }
  return {};
}

std::string refuse_launches(const BackwardProblem& problem, const PlanContext&) {
  const ForwardProblem& p = problem.forward;
  if (std::string refusal = refuse_narrow(p); !refusal.empty()) return refusal;
  // Row statistics take a warp per query, eight to a block, and so do zeros of a packed batch.
  const int64_t queries = product_of({p.heads_q, query_rows(p, kBlockQ)}) / 8;
  const int64_t keys = product_of({p.heads_kv, key_rows(p, kRows)}) / (p.packed ? 8 : kRows);
  if (sum_of({queries, keys}) <= kMostBlocks) return {};
  return fmt::format("q: has {} sequences of {} heads and {} rows, wanted fewer in all", p.batch,
                     p.heads_q, p.seqlen_q);
}

}  // namespace

BackwardSupports supports() {
  return but_not(common_supports({.most = kHeadDim, .step = kColumnStep, .least = kColumnStep}),
                 refuse_launches);
}

}  // namespace flashcore::cuda::backward_sm90::wide
