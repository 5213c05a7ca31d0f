#include "dispatch/kernel_choice.hpp"

#include <fmt/format.h>

#include "problem/status.hpp"

namespace flashcore {

Result<KernelChoice> choose_kernel(const ForwardProblem& problem, const PlanContext& context) {
  std::string refusals;
  const Kernel* declined = nullptr;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device != context.device.device.kind || !kernel.automatic) continue;
    std::string refusal = kernel.refuses(problem, context);
    if (refusal.empty() && kernel.declines) {
      refusal = kernel.declines(problem, context);
      if (!refusal.empty() && declined == nullptr) declined = &kernel;
    }
    if (refusal.empty()) {
      return KernelChoice{&kernel, refusals.empty() ? "it is the best kernel of this device"
                                                    : "others come before it: " + refusals};
    }
    refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", kernel.name, refusal);
  }
  if (declined != nullptr) return KernelChoice{declined, "no other computes it: " + refusals};
  return unsupported("problem: no kernel of this device computes it ({})",
                     refusals.empty() ? "it has none that is chosen by itself" : refusals);
}

}  // namespace flashcore
