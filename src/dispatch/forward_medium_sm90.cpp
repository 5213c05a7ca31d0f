#include "dispatch/forward_medium_sm90.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "cuda/forward_medium_sm90/config.hpp"
#include "cuda/forward_medium_sm90/launch.hpp"
#include "dispatch/cuda_launch.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/small_decision.hpp"
#include "dispatch/small_mapped.hpp"

namespace flashcore {
namespace {

namespace medium = cuda::forward_medium_sm90;

constexpr std::string_view kName = "forward_medium_sm90";

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const medium::Grid grid = {
      static_cast<unsigned int>((p.seqlen_q + medium::kBlockQ - 1) / medium::kBlockQ),
      static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch)};
  const medium::InstanceEntry instance = medium::find_instance(
      p.dtype == DType::f16 ? medium::InputType::f16 : medium::InputType::bf16,
      forward_small_sm90_is_whole(p));
  return plan_mapped(
      p, context,
      {kName, instance.prepare,
       [launch = instance.launch, grid, early = context.early_start](
           cudaFunction_t function, const medium::Maps& maps, const medium::Params& params,
           cudaStream_t stream) { return launch(function, maps, params, grid, early, stream); }});
}

}  // namespace

Kernel forward_medium_sm90_kernel() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = false,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                static const std::string targets = build_info().cuda_targets;
                return forward_small_sm90_refusal(p, context.device, targets);
              },
          .declines =
              [](const ForwardProblem& p, const PlanContext& context) {
                return small_declines(p, context, &SmallChoice::is_medium);
              },
          .plan = plan};
}

}  // namespace flashcore
