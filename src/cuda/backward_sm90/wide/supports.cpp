#include "cuda/backward_sm90/wide/supports.hpp"

#include <fmt/format.h>

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
    if (head_dim != kHeadDim) {
      return fmt::format("{}: head dimension is {}, wanted {}", name, head_dim, kHeadDim);
    }
  }
  return {};
}

std::string refuse_launches(const ForwardProblem& p) {
  const int64_t query_blocks = (p.seqlen_q + kBlockQ - 1) / kBlockQ;
  const int64_t key_blocks = (p.seqlen_kv + kRows - 1) / kRows;
  // Notes take a warp a query, eight to a block.
  const int64_t queries = product_of({p.batch, p.heads_q, query_blocks, kBlockQ / 8});
  if (sum_of({queries, product_of({p.batch, p.heads_kv, key_blocks})}) <= kMostBlocks) return {};
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
