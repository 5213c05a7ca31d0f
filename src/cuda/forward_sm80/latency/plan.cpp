#include "cuda/forward_sm80/latency/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/params.hpp"
#include "cuda/forward_sm80/latency/supports.hpp"
#include "cuda/forward_sm80/latency/whole_tiles.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/latency_params.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/problem_for_heuristics.hpp"
#include "kernel/query_tiles.hpp"

namespace flashcore::cuda::forward_sm80::latency {
namespace {

constexpr std::string_view kName = "forward_sm80_latency";

struct Planned {
  Params params;
  launch::Kernel kernel;
  launch::Grid grid;
};

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args,
           const launch::Launcher& launcher) {
  Params params = planned.params;
  host::bind_forward_params(params.problem, p, args);
  params.whole.q.data = args.q;
  params.whole.k.data = args.k;
  params.whole.v.data = args.v;
  return launcher.launch(planned.kernel, planned.grid, params);
}

// What blocks are for, as a config: one SM for each, or half of one.
constexpr std::string_view kConfigNames[] = {"warps=8", "warps=4"};
constexpr bool is_called(const Config& config, std::string_view name) {
  return name == kConfigNames[config.warps == kConfigs[0].warps ? 0 : 1];
}

// The row of kConfigs that `name` names and that fits, or -1.
int named_config(const ForwardProblem& p, const PlanContext& context, std::string_view name) {
  for (const bool one_wave : {false, true}) {
    const int row = choose_config(p.head_dim_qk, p.head_dim_v, kFewKeys + 1, one_wave,
                                  context.device.shared_memory_per_block);
    if (row >= 0 && is_called(kConfigs[static_cast<size_t>(row)], name)) return row;
  }
  return -1;
}

int config_of(const ForwardProblem& p, const PlanContext& context) {
  if (const int named = named_config(p, context, context.config); named >= 0) return named;
  const ForwardProblem seen = problem_for_heuristics(p, context);
  const bool one_wave = units_of(seen, kBlockQ) <= context.device.multiprocessors;
  return choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave,
                       context.device.shared_memory_per_block);
}

std::vector<std::string> candidates(const ForwardProblem& p, const PlanContext& context) {
  std::vector<std::string> names;
  const int own = config_of(p, context);
  for (const std::string_view name : kConfigNames) {
    const int row = named_config(p, context, name);
    if (row >= 0 && row != own) names.emplace_back(name);
  }
  return names;
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  if (p.seqlen_q == 0 || p.heads_q == 0 || p.batch == 0) return launch::nothing<PlannedKernel>();
  Planned planned{};
  planned.params.problem = host::latency_params(p);
  planned.grid.blocks =
      dim3(static_cast<unsigned int>((p.seqlen_q + kBlockQ - 1) / kBlockQ),
           static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch));
  const int row = config_of(p, context);
  const Config& config = kConfigs[static_cast<size_t>(row)];
  planned.params.problem.fills =
      p.head_dim_qk == config.head_dim && p.head_dim_v == config.head_dim;
  const bool whole = set_whole_params(planned.params, p, config);
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(
      launch::Loader(kName, device)
          .load(planned.kernel, kName,
                fmt::format("small80_{}_config{}{}", launch::element_name(p.dtype), row,
                            whole ? "_whole" : "")));
  return launch::planned<PlannedKernel>(
      kName, device, 0,
      [p, planned](const Arguments& args, std::span<std::byte>, const launch::Launcher& launcher) {
        return run(p, planned, args, launcher);
      });
}

}  // namespace

Variant variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = true,
          .wants_alignment = true,
          .targets = build::targets::forward_sm80_latency,
          .supports = supports(),
          .plan = plan,
          .candidates = candidates};
}

}  // namespace flashcore::cuda::forward_sm80::latency
