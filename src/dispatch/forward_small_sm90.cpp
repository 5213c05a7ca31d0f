#include "dispatch/forward_small_sm90.hpp"

#include <string_view>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/kernel_targets.hpp"
#include "dispatch/seen_by_choice.hpp"
#include "dispatch/small_mapped.hpp"
#include "dispatch/small_tiles.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_small_sm90;

constexpr std::string_view kName = "forward_small_sm90";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const ForwardProblem seen = seen_by_choice(p, context);
  const bool one_wave = fits_twice(seen, small::kBlockQ, context.device.multiprocessors);
  const small::InstanceEntry& instance = small::find_instance(
      {.type = mapped_input_type(p),
       .config = small::choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave),
       .cover = forward_small_sm90_cover(p)});
  return plan_mapped(p, context, {kName, small::kBlockQ, instance});
}

}  // namespace

Kernel forward_small_sm90_kernel() {
  return mapped_kernel(kName, build::kForwardSmallSm90Targets, &SmallChoice::is_small, plan);
}

}  // namespace flashcore
