#include "dispatch/forward_small_sm90.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "cuda/forward_small_sm90/config.hpp"
#include "cuda/forward_small_sm90/launch.hpp"
#include "dispatch/forward_sm80.hpp"
#include "dispatch/forward_sm90.hpp"
#include "dispatch/forward_small_params.hpp"
#include "dispatch/forward_small_sm90_refusal.hpp"
#include "dispatch/small_choice.hpp"
#include "dispatch/small_mapped.hpp"

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
  const int64_t blocks = int64_t{2} * grid.q_tiles * grid.heads * grid.batch;
  // Which of the two computes an entry may not depend on the others where that is promised.
  const bool one_wave = !context.batch_invariant && blocks <= context.device.multiprocessors;
  const small::InstanceEntry& instance = small::find_instance(
      {.type = input_type(p),
       .config = small::choose_config(p.head_dim_qk, p.head_dim_v, p.seqlen_kv, one_wave),
       .whole = forward_small_sm90_is_whole(p)});
  return plan_mapped(
      p, context,
      {kName, instance.prepare,
       [&instance, grid, early = context.early_start](
           const small::Maps& maps, const small::Params& params, cudaStream_t stream) {
         return instance.launch(maps, params, grid, early, stream);
       }});
}

// Of the kernel that runs where this one does not.
const KernelModel& model_of_next(const ForwardProblem& p, const PlanContext& context) {
  static const Kernel sm90 = forward_sm90_kernel();
  const bool takes = sm90.automatic && sm90.refuses(p, context).empty() &&
                     (!sm90.declines || sm90.declines(p, context).empty());
  return takes ? kSm90Model : kSm80Model;
}

// What the choice goes by is known without data, and does not depend on the batch where that is
// forbidden.
std::string declines(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant)
    return "batch_invariant: is set, and the choice depends on the batch";
  if (small_entries_vary(p))
    return "entries have lengths or diagonals of their own: its time is not known";
  const SmallChoice choice =
      choose_small(p, context.device.multiprocessors, model_of_next(p, context));
  if (choice.is_small()) return {};
  if (!choice.is_measured) return "the problem is larger than those it was measured on";
  return fmt::format("would take about {:.1f} us, the next kernel {:.1f}", choice.small_us,
                     choice.next_us);
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
          .declines = declines,
          .plan = plan};
}

}  // namespace flashcore
