#include "cuda/forward_sm80/latency/plan.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/launch.hpp"
#include "cuda/forward_sm80/latency/supports.hpp"
#include "cuda/forward_sm80/latency/whole_tiles.hpp"
#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/latency_params.hpp"
#include "kernel/query_tiles.hpp"
#include "kernel/seen_by_choice.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::forward_sm80::latency {
namespace {

constexpr std::string_view kName = "forward_sm80_latency";

struct Planned {
  Params params;
  Instance instance;
  Grid grid;
  int device;
  cudaFunction_t function;
};

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args, Stream stream) {
  Params params = planned.params;
  host::bind_forward_params(params.problem, p, args);
  params.whole.q.data = args.q;
  params.whole.k.data = args.k;
  params.whole.v.data = args.v;
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  const cudaError_t error =
      find_instance(planned.instance)
          .launch(planned.function, params, planned.grid, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return host::cuda_failure(kName, "the launch", error);
  return {};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  Planned planned{};
  planned.params.problem = host::latency_params(p);
  planned.grid = {static_cast<unsigned int>((p.seqlen_q + kBlockQ - 1) / kBlockQ),
                  static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch)};
  const ForwardProblem seen = seen_by_choice(p, context);
  const bool one_wave = units_of(seen, kBlockQ) <= context.device.multiprocessors;
  planned.instance = {.type = p.dtype == DType::f16 ? InputType::f16 : InputType::bf16,
                      .config = choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave,
                                              context.device.shared_memory_a_block),
                      .whole = false};
  planned.device = context.device.device.index;
  const Config& config = kConfigs[static_cast<size_t>(planned.instance.config)];
  planned.params.problem.fills =
      p.head_dim_qk == config.head_dim && p.head_dim_v == config.head_dim;
  planned.instance.whole = set_whole_params(planned.params, p, config);

  if (planned.grid.q_tiles == 0 || planned.grid.heads == 0 || planned.grid.batch == 0) {
    return PlannedKernel{
        // no output has an element
        .run = [](const Arguments&, std::span<std::byte>, Stream) { return Status(); }};
  }
  const host::DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(kName, "choosing its GPU", guard.error());
  const cudaError_t error = find_instance(planned.instance).prepare(planned.function);
  if (error != cudaSuccess) return host::cuda_failure(kName, "preparing the kernel", error);
  return PlannedKernel{
      .run = [p, planned](const Arguments& args, std::span<std::byte>, Stream stream) {
        return run(p, planned, args, stream);
      }};
}

}  // namespace

Kernel kernel() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = true,
          .wants_alignment = true,
          .targets = build::targets::forward_sm80_latency,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                return refusal(p, context.device, build::targets::forward_sm80_latency);
              },
          .plan = plan};
}

}  // namespace flashcore::cuda::forward_sm80::latency
