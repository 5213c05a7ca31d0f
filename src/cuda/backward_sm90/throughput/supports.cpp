#include "cuda/backward_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::throughput {
namespace {

// Blocks of the largest launch, whose blocks are 256 numbers of Q each.
constexpr int64_t kMostBlocks = std::numeric_limits<int32_t>::max();

std::string refuse_head_dims(const ForwardProblem& p) {
  for (const auto& [name, head_dim] : {std::pair{"q", p.head_dim_qk}, {"v", p.head_dim_v}}) {
    if (config_index(head_dim) < 0 || head_dim != p.head_dim_qk) {
      return fmt::format("{}: head dimension is {}, wanted 64 or 128, the same for q and v", name,
                         head_dim);
    }
  }
  return {};
}

std::string refuse_launches(const ForwardProblem& p) {
  const int64_t block = kConfigs[static_cast<size_t>(config_index(p.head_dim_qk))].block_q;
  const int64_t queries = (p.seqlen_q + block - 1) / block * block;
  const int64_t chunks = product_of({p.batch, p.heads_q, queries, p.head_dim_qk / 8});
  const int64_t tiles =
      product_of({p.batch, p.heads_kv, (p.seqlen_kv + kBlockKeys - 1) / kBlockKeys});
  // Launches have fewer blocks than a quarter of the chunks, and as many as tiles besides.
  if (sum_of({chunks / 8, tiles}) <= kMostBlocks) return {};
  return fmt::format("q: batch is {}, heads {} and length {}, wanted fewer in all", p.batch,
                     p.heads_q, p.seqlen_q);
}

}  // namespace

std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  std::string refusal = common_refusal(problem, device, targets, refuse_head_dims(problem.forward));
  return refusal.empty() ? refuse_launches(problem.forward) : refusal;
}

}  // namespace flashcore::cuda::backward_sm90::throughput
