#include "cuda/forward_fp8_sm90/throughput/supports.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/attention/kv_range.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/host/launch_limits.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

// Tiles are counted in 32 bits, with the parts of V's columns.
std::string refuse_option_sizes(const ForwardProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t slots_q = p.packed ? p.total_q / kWarpgroupRows + p.batch : 0;
  const int64_t slots_kv = p.packed ? p.total_kv / kBlockKv + p.batch : 0;
  for (const auto& [name, tiles] :
       {std::pair{"q", product_of({p.packed ? slots_q : p.seqlen_q / kWarpgroupRows + 1,
                                   p.packed ? 1 : p.batch, p.heads_q})},
        {"k", product_of({slots_kv, p.heads_kv, kBlockKv})}}) {
    if (tiles > kMost) {
      return fmt::format("{}: has {} tiles in all heads, wanted at most {}", name, tiles, kMost);
    }
  }
  return {};
}

std::string refuse_sizes(const ForwardProblem& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
  const int64_t blocks = (p.seqlen_kv + kBlockKv - 1) / kBlockKv;
  if (product_of({blocks, p.batch, p.heads_kv}) > kMost) {
    return fmt::format("k: has {} blocks of {} keys in each of {} heads, wanted at most {} in all",
                       blocks, kBlockKv, product_of({p.batch, p.heads_kv}), kMost);
  }
  return host::refuse_tiles(p, kWarpgroupRows);
}

}  // namespace

Supports supports() {
  using enum Feature;
  return {.features = (feature_sets::kShapes - Features{packed, v_head_dim}) |
                      Features{sinks, scale_not_positive, v_transposed, o_apart},
          .q = {DType::f8e4m3},
          .o = kFloats,
          .head_dims = {.most = 128, .step = 64, .least = 64},
          .rows_below = attention::kMostRows,
          .arch = {90, 90},
          .extra = [](const ForwardProblem& p, const PlanContext&) { return refuse_sizes(p); }};
}

Supports supports_192x64() {
  Supports supports_128 = supports();
  supports_128.head_dims.least = supports_128.head_dims.most = kConfigs[k192x64].head_dim;
  return supports_128;
}

Supports option_supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | feature_sets::kMagnitudes |
                      Features{sinks, softcap, scale_not_positive, o_apart, o_scale},
          .q = kFp8,
          .o = kUpTo32Bits,
          .head_dims = {.most = kOptionConfigs.back().head_dim,
                        .step = kHeadDimStep,
                        .least = kHeadDimStep},
          .rows_below = attention::kMostRows,
          .arch = {90, 90},
          .extra = [](const ForwardProblem& p, const PlanContext&) {
            std::string refusal = refuse_sizes(p);
            return refusal.empty() ? refuse_option_sizes(p) : refusal;
          }};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
