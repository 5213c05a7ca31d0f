#include "plan/table.hpp"

#include <fmt/format.h>

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
  return {.refuses = [](const BackwardProblem&, const PlanContext&) { return std::string(); },
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

Kernel cpu_simd() {
  return {.name = "cpu_simd",
          .device = DeviceKind::cpu,
          .automatic = true,
          .reads_dropout_state = true,
          .reads_caches = true,
          .reads_tree_masks = true,
          .reads_transposed_v = true,
          .fp8_types = Fp8Types::any,
          .scales_o = true,
          .writes_largest = true,
          .refuses = [](const ForwardProblem& p,
                        const PlanContext& context) { return cpu::forward_refuses(p, context); },
          .plan = [](const ForwardProblem& p, const PlanContext& context) -> Result<PlannedKernel> {
            return cpu::plan_forward(p, context);
          },
          .candidates = cpu::forward_candidates,
          .backward = {.refuses =
                           [](const BackwardProblem& p, const PlanContext& context) {
                             return cpu::backward_refuses(p, context);
                           },
                       .plan = [](const BackwardProblem& p, const PlanContext& context)
                           -> Result<PlannedBackward> { return cpu::plan_backward(p, context); },
                       .candidates = cpu::backward_candidates}};
}

Kernel reference() {
  return {.name = "reference",
          .device = DeviceKind::cpu,
          .automatic = true,
          .reads_dropout_state = true,
          .reads_caches = true,
          .reads_tree_masks = true,
          .reads_transposed_v = true,
          .fp8_types = Fp8Types::any,
          .scales_o = true,
          .writes_largest = true,
          .refuses = [](const ForwardProblem&, const PlanContext&) { return std::string(); },
          .plan =
              [](const ForwardProblem& p, const PlanContext& context) {
                return plan_reference(p, context.threads, DType::f64);
              },
          .backward = reference_backward([](const ForwardProblem&) { return DType::f64; })};
}

// The baseline of the gates; never chosen automatically.
Kernel naive() {
  return {.name = "naive",
          .device = DeviceKind::cpu,
          .automatic = false,
          .reads_dropout_state = true,
          .reads_caches = true,
          .reads_tree_masks = true,
          .reads_transposed_v = true,
          .fp8_types = Fp8Types::any,
          .scales_o = true,
          .writes_largest = true,
          .refuses = [](const ForwardProblem& p, const PlanContext&) -> std::string {
            if (p.dtype == DType::f16 || p.dtype == DType::bf16) return {};
            return fmt::format(
                "dtype is {}, wanted f16 or bf16: it rounds scores and "
                "probabilities to the type of the inputs",
                to_string(p.dtype));
          },
          .plan =
              [](const ForwardProblem& p, const PlanContext& context) {
                return plan_reference(p, context.threads, p.dtype);
              },
          .backward = reference_backward([](const ForwardProblem& p) { return p.dtype; })};
}

}  // namespace

const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> table = [] {
    std::vector<Kernel> all = cuda_kernels();
    all.push_back(cpu_simd());
    all.push_back(reference());
    all.push_back(naive());
    return all;
  }();
  return table;
}

}  // namespace flashcore
