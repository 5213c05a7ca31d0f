#include "plan/table.hpp"

#include <utility>

#include "cpu/backward.hpp"
#include "cpu/forward.hpp"
#include "cpu/reference.hpp"
#include "cpu/reference_backward.hpp"
#include "plan/cuda_kernels.hpp"

namespace flashcore {
namespace {

Result<PlannedKernel> plan_reference(const ForwardProblem& p, int threads, DType intermediate) {
  return PlannedKernel{.workspace_bytes = 0,
                       .run = [=](const Arguments& args, std::span<std::byte>, Stream) -> Status {
                         cpu::reference_forward(p, args, threads, intermediate);
                         return {};
                       }};
}

BackwardKernel reference_backward(std::function<DType(const ForwardProblem&)> intermediate) {
  return {.supports = everything<BackwardProblem>(),
          .plan = [intermediate = std::move(intermediate)](
                      const BackwardProblem& problem,
                      const PlanContext& context) -> Result<PlannedBackward> {
            return PlannedBackward{
                .workspace_bytes = 0,
                .run = [problem, threads = context.threads, type = intermediate(problem.forward)](
                           const BackwardArguments& args, std::span<std::byte>, Stream) -> Status {
                  cpu::reference_backward(problem, args, threads, type);
                  return {};
                }};
          }};
}

constexpr Features kOfF64 = {Feature::lse_of_f64, Feature::d_lse_of_f64, Feature::gradients_of_f64};

Variant cpu_simd() {
  return {.name = "cpu_simd",
          .device = DeviceKind::cpu,
          .automatic = true,
          .supports = {.features = Features::all() - Feature::lse_of_f64,
                       .q = kAnyDtype,
                       .o = kUpTo32Bits,
                       .extra = cpu::forward_refuses},
          .plan = [](const ForwardProblem& p, const PlanContext& context) -> Result<PlannedKernel> {
            return cpu::plan_forward(p, context);
          },
          .candidates = cpu::forward_candidates,
          .backward = {.supports = {.features = Features::all() - kOfF64,
                                    .q = kAnyDtype,
                                    .o = kUpTo32Bits,
                                    .extra = cpu::backward_refuses},
                       .plan = [](const BackwardProblem& p, const PlanContext& context)
                           -> Result<PlannedBackward> { return cpu::plan_backward(p, context); },
                       .candidates = cpu::backward_candidates}};
}

Variant reference() {
  return {.name = "reference",
          .device = DeviceKind::cpu,
          .automatic = true,
          .supports = everything<ForwardProblem>(),
          .plan =
              [](const ForwardProblem& p, const PlanContext& context) {
                return plan_reference(p, context.threads, DType::f64);
              },
          .backward = reference_backward([](const ForwardProblem&) { return DType::f64; })};
}

// The baseline of the gates; never chosen automatically. It rounds scores and probabilities to the inputs' type.
Variant naive() {
  return {.name = "naive",
          .device = DeviceKind::cpu,
          .automatic = false,
          .supports = {.features = Features::all(), .q = kHalf, .o = kAnyDtype},
          .plan =
              [](const ForwardProblem& p, const PlanContext& context) {
                return plan_reference(p, context.threads, p.dtype);
              },
          .backward = reference_backward([](const ForwardProblem& p) { return p.dtype; })};
}

}  // namespace

const std::vector<Variant>& variants() {
  static const std::vector<Variant> table = [] {
    std::vector<Variant> all = cuda_variants();
    all.push_back(cpu_simd());
    all.push_back(reference());
    all.push_back(naive());
    return all;
  }();
  return table;
}

}  // namespace flashcore
