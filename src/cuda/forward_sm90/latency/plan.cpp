#include "cuda/forward_sm90/latency/plan.hpp"

#include <string_view>

#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/common/mapped_plan.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/forward_sm90/latency/launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "kernel/query_tiles.hpp"
#include "kernel/seen_by_choice.hpp"

namespace flashcore::cuda::forward_sm90::latency {
namespace {

constexpr std::string_view kName = "forward_sm90_latency";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const ForwardProblem seen = seen_by_choice(p, context);
  const bool one_wave = fits_twice(seen, kBlockQ, context.device.multiprocessors);
  const InstanceEntry& instance =
      find_instance({.type = mapped_input_type(p),
                     .config = choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave),
                     .cover = cover_of(p)});
  return plan_mapped(p, context, {kName, kBlockQ, instance});
}

}  // namespace

Kernel kernel() { return mapped_kernel(kName, build::targets::forward_sm90_latency, plan); }

}  // namespace flashcore::cuda::forward_sm90::latency
