#include "cuda/decode_sm80/split_kv/supports.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/attention/kv_range.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/schedule.hpp"
#include "cuda/host/launch_limits.hpp"
#include "problem/dtype.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {
namespace {

std::string refuse_sizes(const ForwardProblem& p, const PlanContext& context) {
  if (config_index(p) < 0) {
    const bool qk = p.head_dim_qk > kLargestHeadDimQk;
    return fmt::format("{}: head dimension is {}, wanted at most {}", qk ? "q" : "v",
                       qk ? p.head_dim_qk : p.head_dim_v,
                       qk ? kLargestHeadDimQk : kLargestHeadDimV);
  }
  const Config& config = kConfigs[static_cast<size_t>(config_index(p))];
  if (p.mixes_fp8() && config.head_dim_qk > kMostColumnsOfTwoTypes) {
    return fmt::format("v: dtype is {} at head dimension {}, wanted k's {} above {}",
                       to_string(p.v_dtype), p.head_dim_qk, to_string(p.k_dtype),
                       kMostColumnsOfTwoTypes);
  }
  if (std::string refusal = host::refuse_decode_rows(p); !refusal.empty()) return refusal;
  if (const int64_t units = unit_count(p, context); units > kMostUnits) {
    return fmt::format("q: makes {} units of work, wanted at most {}", units, kMostUnits);
  }
  return {};
}

}  // namespace

int config_index(const ForwardProblem& p) {
  return choose_config(p.head_dim_qk, p.head_dim_v, static_cast<int>(size_of(p.k_dtype)),
                       p.tree_mask.present, p.bias.present || p.mask.present);
}

int64_t block_count(const ForwardProblem& p, const DeviceInfo& device) {
  const Config& config = kConfigs[static_cast<size_t>(config_index(p))];
  return std::max<int64_t>(
      1, int64_t{device.multiprocessors} * blocks_per_sm(config, device.shared_memory_per_block));
}

int64_t unit_count(const ForwardProblem& p, const PlanContext& context) {
  const int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  const int64_t items =
      most_items(p.batch, p.heads_kv, group, p.seqlen_q, p.packed ? p.total_q : -1);
  return most_units(items, p.seqlen_kv, block_count(p, context.device), context.batch_invariant);
}

Supports supports() {
  using enum Feature;
  return {.features = feature_sets::kShapes | feature_sets::kScores | feature_sets::kCaches |
                      feature_sets::kLayouts | Features{v_apart, o_apart, tree_mask, block_scales},
          .q = kHalf,
          .o = kFloats,
          .rows_below = attention::kMostRows,
          .arch = {.least = 80},
          .extra = refuse_sizes};
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
