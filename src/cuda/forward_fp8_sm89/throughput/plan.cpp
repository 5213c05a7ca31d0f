#include "cuda/forward_fp8_sm89/throughput/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <string_view>

#include "cuda/attention/softcap.hpp"
#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/params.hpp"
#include "cuda/forward_fp8_sm89/throughput/supports.hpp"
#include "cuda/host/fp8_params.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {
namespace {

// Keys and values of a section of heads that runs at once: half of an L4's L2.
constexpr int64_t kSectionBytes = int64_t{24} << 20;
constexpr std::string_view kName = "forward_fp8_sm89";
// The choice is one line here: `automatic` where this is empty.
constexpr std::string_view kUntimed = "it was never timed on an Ada GPU";

struct Planned {
  Params params;
  launch::Kernel kernel;
  unsigned int blocks;
};

// Everything but the pointers.
Params make_params(const ForwardProblem& p, host::Terms terms) {
  constexpr double kLargestCap = std::numeric_limits<float>::max() / std::numbers::log2e;
  Params params{};
  host::set_fp8_params(params, p, {kBlockQ, kLargestHeadDim, kSectionBytes}, terms);
  const double cap = std::min<double>(p.softcap, kLargestCap);
  params.cap = static_cast<float>(cap);
  params.cap_log2 = attention::softcap::finite(cap * std::numbers::log2e);
  return params;
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context, host::Terms terms) {
  Planned planned{};
  planned.params = make_params(p, terms);
  planned.blocks = planned.params.order.size();
  if (planned.blocks == 0) return launch::nothing<PlannedKernel>();
  const int config = choose_config(p.head_dim_qk, p.head_dim_v);
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(
      launch::Loader(kName, device)
          .load(planned.kernel, kName,
                fmt::format("d{}", kConfigs[static_cast<size_t>(config)].head_dim)));
  return launch::planned<PlannedKernel>(
      kName, device, 0,
      [p, planned](const Arguments& args, std::span<std::byte> /*workspace*/,
                   const launch::Launcher& launcher) {
        Params params = planned.params;
        host::bind_fp8_params(params, p, args);
        params.by_rows = !host::has_aligned_tensors(p, args);
        return launcher.launch(planned.kernel, {.blocks = dim3(planned.blocks)}, params);
      });
}

Variant variant(std::string_view name, std::string_view not_automatic_reason, host::Terms terms) {
  return {.name = std::string(name),
          .device = DeviceKind::cuda,
          .automatic = not_automatic_reason.empty(),
          .not_automatic_reason = not_automatic_reason,
          .tunable = terms == host::Terms::as_needed,
          .targets = build::targets::forward_fp8_sm89,
          .supports = supports(),
          .plan = [terms](const ForwardProblem& p, const PlanContext& context) {
            return plan(p, context, terms);
          }};
}

}  // namespace

std::vector<Variant> variants() {
  return {variant(kName, kUntimed, host::Terms::as_needed),
          variant("forward_fp8_sm89:precise", "probabilities in two terms take longer",
                  host::Terms::two)};
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
