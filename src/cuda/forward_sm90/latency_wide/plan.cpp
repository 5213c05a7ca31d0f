#include "cuda/forward_sm90/latency_wide/plan.hpp"

#include <string_view>

#include "cuda/forward_sm90/common/mapped_plan.hpp"
#include "cuda/forward_sm90/latency/supports.hpp"
#include "cuda/forward_sm90/latency_wide/config.hpp"
#include "cuda/forward_sm90/latency_wide/launch.hpp"
#include "cuda/host/kernel_targets.hpp"

namespace flashcore {
namespace {

namespace medium = cuda::forward_sm90::latency_wide;

constexpr std::string_view kName = "forward_sm90_latency_wide";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  // What is steep is whole here: nothing is sent in fewer bits.
  const medium::Cover cover =
      forward_sm90_latency_is_whole(p) ? medium::Cover::whole : forward_sm90_latency_cover(p);
  return plan_mapped(p, context,
                     {kName, medium::kBlockQ, medium::find_instance(mapped_input_type(p), cover)});
}

}  // namespace

Kernel forward_sm90_latency_wide_kernel() {
  return mapped_kernel(kName, build::kForwardSm90LatencyWideTargets, &SmallChoice::is_medium, plan);
}

}  // namespace flashcore
