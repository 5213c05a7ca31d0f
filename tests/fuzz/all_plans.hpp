// Plans one problem with every kernel of the table, on a CPU and on GPUs of every generation.
#pragma once

#include <fmt/format.h>

#include <string>

#include "plan/kernel_choice.hpp"
#include "plan/table.hpp"
#include "problem/backward.hpp"
#include "problem/problem.hpp"
#include "problem/sizes.hpp"

namespace flashcore::tests {

// Returns what went wrong with a resolved problem of either pass, or "". plan_with(kernel, context)
// makes a kernel's plan.
template <class Resolved, class PlanWith>
std::string plan_resolved_everywhere(const Resolved& p, bool batch_invariant, bool deterministic,
                                     const PlanWith& plan_with) {
  struct Machine {
    DeviceKind kind;
    int32_t compute_capability, multiprocessors;
    int64_t shared_memory_per_block;
  };
  constexpr Machine kMachines[] = {{DeviceKind::cpu, 0, 4096, 0},
                                   {DeviceKind::cuda, 80, 108, 163 * 1024},
                                   {DeviceKind::cuda, 89, 58, 99 * 1024},
                                   {DeviceKind::cuda, 90, 132, 227 * 1024},
                                   {DeviceKind::cuda, 120, 188, 99 * 1024}};
  for (const Machine& machine : kMachines) {
    PlanContext context;
    context.device.device.kind = machine.kind;
    context.device.compute_capability = machine.compute_capability;
    context.device.multiprocessors = machine.multiprocessors;
    context.device.shared_memory_per_block = machine.shared_memory_per_block;
    context.threads = 4096;
    context.batch_invariant = batch_invariant;
    context.deterministic = deterministic;
    for (const Variant& kernel : variants()) {
      if (kernel.device != machine.kind || !refusal_of(kernel, p, context).empty()) continue;
      const auto planned = plan_with(kernel, context);
      if (!planned.ok()) return fmt::format("{}: {}", kernel.name, planned.status().message());
      if (planned->workspace_bytes >= static_cast<size_t>(kTooLarge)) {
        return fmt::format("{}: {} bytes of workspace", kernel.name, planned->workspace_bytes);
      }
    }
    const KernelChoice choice = choose_kernel(p, context);
    if (choice.reason.empty()) return "choose_kernel: no reason";
  }
  return {};
}

// Returns what went wrong, or "". The undefined-behaviour sanitizer checks that
// no size overflows.
inline std::string plan_everywhere(const Problem& problem, bool batch_invariant) {
  const Result<ForwardProblem> p = resolve(problem);
  if (!p.ok()) return p.status().message().empty() ? "resolve: no sentence" : "";
  return plan_resolved_everywhere(
      *p, batch_invariant, true,
      [&](const Variant& kernel, const PlanContext& context) { return kernel.plan(*p, context); });
}

// plan_everywhere() for a backward pass.
inline std::string plan_everywhere(const Problem& problem, const Gradients& gradients,
                                   bool batch_invariant, bool deterministic) {
  const Result<BackwardProblem> p = resolve(problem, gradients);
  if (!p.ok()) return p.status().message().empty() ? "resolve: no sentence" : "";
  return plan_resolved_everywhere(*p, batch_invariant, deterministic,
                                  [&](const Variant& kernel, const PlanContext& context) {
                                    return kernel.backward.plan(*p, context);
                                  });
}

}  // namespace flashcore::tests
