#include "cuda/forward_sm90/latency/plan.hpp"

#include <string_view>

#include "cuda/forward_sm90/common/mapped_plan.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/forward_sm90/latency/launch.hpp"
#include "cuda/forward_sm90/latency/supports.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "kernel/query_tiles.hpp"
#include "kernel/seen_by_choice.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_sm90::latency;

constexpr std::string_view kName = "forward_sm90_latency";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const ForwardProblem seen = seen_by_choice(p, context);
  const bool one_wave = fits_twice(seen, small::kBlockQ, context.device.multiprocessors);
  const small::InstanceEntry& instance = small::find_instance(
      {.type = mapped_input_type(p),
       .config = small::choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave),
       .cover = forward_sm90_latency_cover(p)});
  return plan_mapped(p, context, {kName, small::kBlockQ, instance});
}

}  // namespace

Kernel forward_sm90_latency_kernel() {
  return mapped_kernel(kName, build::kForwardSm90LatencyTargets, &SmallChoice::is_small, plan);
}

}  // namespace flashcore
