#include "cuda/forward_sm90/latency_wide/plan.hpp"

#include <fmt/format.h>

#include <string_view>

#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/common/mapped_plan.hpp"
#include "cuda/forward_sm90/latency_wide/config.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {
namespace {

constexpr std::string_view kName = "forward_sm90_latency:wide";
constexpr std::string_view kFamily = "forward_sm90_latency";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  return plan_mapped(
      p, context,
      {kName, kFamily, kBlockQ, kRanks,
       fmt::format("{}_{}", launch::element_name(p.dtype), tile_bounds_name(tile_bounds_of(p)))});
}

}  // namespace

Variant variant() { return mapped_variant(kName, build::targets::forward_sm90_latency, plan); }

}  // namespace flashcore::cuda::forward_sm90::latency_wide
