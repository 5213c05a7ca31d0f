#include "cuda/backward_sm90/throughput/split/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "cuda/backward_sm90/common/supports.hpp"
#include "cuda/backward_sm90/throughput/split/config.hpp"
#include "cuda/backward_sm90/throughput/supports.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90::split {
namespace {

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

std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  std::string refusal = throughput::refusal(problem, device, targets);
  if (!refusal.empty()) return refusal;
  const ForwardProblem& p = problem.forward;
  if (p.softcap > 0) return fmt::format("softcap: is {}, wanted 0", p.softcap);
  if (p.packed) return "cu_seqlens_q: is given, wanted none";
  if (entries_vary(p)) return "seqlens_kv: entries differ, wanted all alike";
  // A launch has 2^31 - 1 blocks at most.
  constexpr int64_t kMostTiles = (int64_t{1} << 31) / kMostSplits - 1;
  if (const int64_t tiles = tiles_of(p); tiles > kMostTiles) {
    return fmt::format("k: makes {} tiles of {} keys, wanted at most {}", tiles,
                       throughput::kBlockKeys, kMostTiles);
  }
  return {};
}

}  // namespace flashcore::cuda::backward_sm90::split
