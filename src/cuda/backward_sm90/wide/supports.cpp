#include "cuda/backward_sm90/wide/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/wide/config.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::wide {
namespace {

// Blocks of the largest launch.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

std::string refuse_head_dims(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (head_dim <= 0 || head_dim % kColumnStep != 0 || head_dim > kHeadDim) {
      return fmt::format("{}: head dimension is {}, wanted a multiple of {}, at most {}", name,
                         head_dim, kColumnStep, kHeadDim);
    }
  }
  // backward_sm90 has those, in tiles of their size.
  if (std::max(p.head_dim_qk, p.head_dim_v) <= kHeadDim / 2) {
    return fmt::format("q: head dimension is {}, and that of v {}, wanted one of more than {}",
                       p.head_dim_qk, p.head_dim_v, kHeadDim / 2);
  }
  return {};
}

std::string refuse_launches(const ForwardProblem& p) {
  // Notes take a warp a query, eight to a block, and so do zeros of a packed batch.
  const int64_t queries = product_of({p.heads_q, query_rows(p, kBlockQ)}) / 8;
  const int64_t keys = product_of({p.heads_kv, key_rows(p, kRows)}) / (p.packed ? 8 : kRows);
  if (sum_of({queries, keys}) <= kMostBlocks) return {};
  return fmt::format("q: batch is {}, heads {} and length {}, wanted fewer in all", p.batch,
                     p.heads_q, p.seqlen_q);
}

}  // namespace

std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  std::string refusal = common_refusal(problem, device, targets, refuse_head_dims(problem.forward));
  return refusal.empty() ? refuse_launches(problem.forward) : refusal;
}

}  // namespace flashcore::cuda::backward_sm90::wide
