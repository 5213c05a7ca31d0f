#include "plan/table.hpp"

#include <fmt/format.h>

#include <utility>

#include "cpu/forward.hpp"
#include "cpu/reference.hpp"
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

Kernel cpu_simd() {
  return {.name = "cpu_simd",
          .device = DeviceKind::cpu,
          .automatic = true,
          .refuses = [](const ForwardProblem& p,
                        const PlanContext& context) { return cpu::forward_refuses(p, context); },
          .plan = [](const ForwardProblem& p, const PlanContext& context) -> Result<PlannedKernel> {
            return cpu::plan_forward(p, context);
          }};
}

Kernel reference() {
  return {.name = "reference",
          .device = DeviceKind::cpu,
          .automatic = true,
          .refuses = [](const ForwardProblem&, const PlanContext&) { return std::string(); },
          .plan =
              [](const ForwardProblem& p, const PlanContext& context) {
                return plan_reference(p, context.threads, DType::f64);
              }};
}

// The yardstick of the 16-bit gates, never a choice.
Kernel naive() {
  return {.name = "naive",
          .device = DeviceKind::cpu,
          .automatic = false,
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
              }};
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
