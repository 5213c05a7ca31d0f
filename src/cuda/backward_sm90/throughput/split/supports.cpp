#include "cuda/backward_sm90/throughput/split/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/throughput/split/config.hpp"
#include "cuda/backward_sm90/throughput/supports.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::split {
namespace {

// A launch has 2^31 - 1 blocks at most.
constexpr int64_t kMostTiles = (int64_t{1} << 31) / kMostSplits - 1;

// The most steps of a tile.
int64_t steps_of(const ForwardProblem& p) {
  const int index = throughput::config_index(std::max(p.head_dim_qk, p.head_dim_v), false);
  const Config& config = kConfigs[static_cast<size_t>(index)];
  const int64_t blocks = (p.seqlen_q + config.block_q - 1) / config.block_q;
  return blocks * (p.heads_q / p.heads_kv);
}

}  // namespace

int64_t tiles_of(const ForwardProblem& p) {
  return product_of({p.heads_kv, key_rows(p, throughput::kBlockKeys) / throughput::kBlockKeys});
}

int splits_of(const ForwardProblem& p, int multiprocessors) {
  return fewest_steps(tiles_of(p), steps_of(p), multiprocessors);
}

BackwardSupports supports() {
  BackwardSupports supports = throughput::supports();
  supports.features = supports.features - feature_sets::kLengths - Feature::softcap;
  return but_not(supports, [](const BackwardProblem& problem, const PlanContext&) -> std::string {
    const int64_t tiles = tiles_of(problem.forward);
    if (tiles <= kMostTiles) return {};
    return fmt::format("k: makes {} tiles of {} keys, wanted at most {}", tiles,
                       throughput::kBlockKeys, kMostTiles);
  });
}

}  // namespace flashcore::cuda::backward_sm90::split
