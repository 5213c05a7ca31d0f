#include "dispatch/forward_small_sm90.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "dispatch/cuda_launch.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/small_decision.hpp"
#include "dispatch/small_mapped.hpp"
#include "dispatch/small_tiles.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_small_sm90;

constexpr std::string_view kName = "forward_small_sm90";

small::InputType input_type(const ForwardProblem& p) {
  return p.dtype == DType::f16 ? small::InputType::f16 : small::InputType::bf16;
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  const small::Grid grid = {
      static_cast<unsigned int>((p.seqlen_q + small::kBlockQ - 1) / small::kBlockQ),
      static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch)};
  // Which of the two computes an entry may not depend on the others where that is promised.
  const bool one_wave =
      !context.batch_invariant && fits_twice(p, small::kBlockQ, context.device.multiprocessors);
  const small::InstanceEntry& instance = small::find_instance(
      {.type = input_type(p),
       .config = small::choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv, one_wave),
       .cover = forward_small_sm90_cover(p)});
  return plan_mapped(p, context,
                     {kName, instance.prepare,
                      [&instance, grid, early = context.early_start](
                          cudaFunction_t function, const small::Maps& maps,
                          const small::Params& params, cudaStream_t stream) {
                        return instance.launch(function, maps, params, grid, early, stream);
                      }});
}

}  // namespace

Kernel forward_small_sm90_kernel() {
  return {.name = "forward_small_sm90",
          .device = DeviceKind::cuda,
          .automatic = true,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                static const std::string targets = build_info().cuda_targets;
                return forward_small_sm90_refusal(p, context.device, targets);
              },
          .declines =
              [](const ForwardProblem& p, const PlanContext& context) {
                return small_declines(p, context, &SmallChoice::is_small);
              },
          .plan = plan};
}

}  // namespace flashcore
