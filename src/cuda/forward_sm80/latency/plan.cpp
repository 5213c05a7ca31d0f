#include "cuda/forward_sm80/latency/plan.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/launch.hpp"
#include "cuda/forward_sm80/latency/whole_tiles.hpp"
#include "cuda/forward_sm80/throughput/plan.hpp"
#include "cuda/forward_sm90/latency/supports.hpp"
#include "cuda/host/cuda_launch.hpp"
#include "cuda/host/device_guard.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/latency_params.hpp"
#include "kernel/seen_by_choice.hpp"
#include "problem/status.hpp"
#include "tuning/small_choice.hpp"

namespace flashcore {
namespace {

namespace small = cuda::forward_sm80::latency;

constexpr std::string_view kName = "forward_sm80_latency";

struct Planned {
  small::Params params;
  small::Instance instance;
  small::Grid grid;
  int device;
  cudaFunction_t function;
};

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args, Stream stream) {
  small::Params params = planned.params;
  bind_forward_params(params.problem, p, args);
  params.whole.q.data = args.q;
  params.whole.k.data = args.k;
  params.whole.v.data = args.v;
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure(kName, "choosing its GPU", guard.error());
  const cudaError_t error =
      small::find_instance(planned.instance)
          .launch(planned.function, params, planned.grid, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return cuda_failure(kName, "the launch", error);
  return {};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  Planned planned{};
  planned.params.problem = small_params(p);
  planned.grid = {static_cast<unsigned int>((p.seqlen_q + small::kBlockQ - 1) / small::kBlockQ),
                  static_cast<unsigned int>(p.heads_q), static_cast<unsigned int>(p.batch)};
  const ForwardProblem seen = seen_by_choice(p, context);
  const bool one_wave = units_of(seen, small::kBlockQ) <= context.device.multiprocessors;
  planned.instance = {
      .type = p.dtype == DType::f16 ? small::InputType::f16 : small::InputType::bf16,
      .config = small::choose_config(p.head_dim_qk, p.head_dim_v, seen.seqlen_kv, one_wave,
                                     context.device.shared_memory_a_block),
      .whole = false};
  planned.device = context.device.device.index;
  const small::Config& config = small::kConfigs[static_cast<size_t>(planned.instance.config)];
  planned.params.problem.fills =
      p.head_dim_qk == config.head_dim && p.head_dim_v == config.head_dim;
  planned.instance.whole = set_whole_params(planned.params, p, config);

  // Copies need pointers at multiples of 16 bytes; what begins elsewhere is another kernel's.
  Result<PlannedKernel> unaligned = forward_sm80_throughput_kernel().plan(p, context);
  if (!unaligned.ok()) return unaligned.status();
  if (planned.grid.q_tiles == 0 || planned.grid.heads == 0 || planned.grid.batch == 0) {
    return unaligned;  // no output has an element
  }
  const DeviceGuard guard(planned.device);
  if (guard.error() != cudaSuccess) return cuda_failure(kName, "choosing its GPU", guard.error());
  const cudaError_t error = small::find_instance(planned.instance).prepare(planned.function);
  if (error != cudaSuccess) return cuda_failure(kName, "preparing the kernel", error);
  PlannedKernel own{.run = [p, planned](const Arguments& args, std::span<std::byte>,
                                        Stream stream) { return run(p, planned, args, stream); }};
  return where_aligned(std::move(own), std::move(*unaligned));
}

}  // namespace

Kernel forward_sm80_latency_kernel() {
  return {.name = "forward_sm80_latency",
          .device = DeviceKind::cuda,
          .automatic = false,
          .targets = build::kForwardSm80LatencyTargets,
          .refuses =
              [](const ForwardProblem& p, const PlanContext& context) {
                return forward_sm80_latency_refusal(p, context.device,
                                                    build::kForwardSm80LatencyTargets);
              },
          .plan = plan};
}

}  // namespace flashcore
