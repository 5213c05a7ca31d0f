#include "dispatch/forward_medium_sm90.hpp"

#include <string_view>

#include "cuda/forward_medium_sm90/config.hpp"
#include "cuda/forward_medium_sm90/launch.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/kernel_targets.hpp"
#include "dispatch/small_mapped.hpp"

namespace flashcore {
namespace {

namespace medium = cuda::forward_medium_sm90;

constexpr std::string_view kName = "forward_medium_sm90";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  // What is steep is whole here: nothing is sent in fewer bits.
  const medium::Cover cover =
      forward_small_sm90_is_whole(p) ? medium::Cover::whole : forward_small_sm90_cover(p);
  return plan_mapped(p, context,
                     {kName, medium::kBlockQ, medium::find_instance(mapped_input_type(p), cover)});
}

}  // namespace

Kernel forward_medium_sm90_kernel() {
  return mapped_kernel(kName, build::kForwardMediumSm90Targets, &SmallChoice::is_medium, plan);
}

}  // namespace flashcore
