#include "plan/kernel_choice.hpp"

#include <fmt/format.h>

#include <string_view>

#include "kernel/device_code.hpp"
#include "plan/forward_choice.hpp"
#include "plan/table.hpp"

namespace flashcore {
namespace {

// What a caller should know of a kernel that runs.
std::string note_of(const Kernel& kernel, const DeviceInfo& device, bool has_declines) {
  std::string note;
  if (device_code(kernel.targets, device.compute_capability) == DeviceCode::ptx) {
    note = fmt::format(
        "never measured on compute capability {}, for which the driver compiles it at its first "
        "use",
        capability_text(device.compute_capability));
  }
  if (!kernel.by_name_because.empty()) {
    note += fmt::format("{}{}", note.empty() ? "" : "; ", kernel.by_name_because);
  }
  if (kernel.device != DeviceKind::cuda || !has_declines) return note;
  const std::string provenance = tuning_for(device).provenance();
  if (provenance.empty()) return note;
  return fmt::format("{}{}its tuning was {}", note, note.empty() ? "" : "; ", provenance);
}

std::string_view objection_of(const KernelVerdict& verdict) {
  return verdict.refusal.empty() ? verdict.declines : verdict.refusal;
}

const auto& declines_of(const Kernel& kernel, const ForwardProblem& /*pass*/) {
  return kernel.declines;
}
const auto& declines_of(const Kernel& kernel, const BackwardProblem& /*pass*/) {
  return kernel.backward.declines;
}

template <class AnyProblem>
KernelVerdict verdict(const Kernel& kernel, const AnyProblem& problem, const PlanContext& context) {
  KernelVerdict verdict{.kernel = kernel.name,
                        .refusal = refusal_of(kernel, problem, context),
                        .automatic = kernel.automatic};
  if (!verdict.refusal.empty()) return verdict;
  const auto& declines = declines_of(kernel, problem);
  if (kernel.automatic && declines) verdict.declines = declines(problem, context);
  verdict.note = note_of(kernel, context.device, static_cast<bool>(declines));
  return verdict;
}

template <class AnyProblem>
KernelChoice choose(const AnyProblem& problem, const PlanContext& context) {
  KernelChoice choice;
  const Kernel* declined = nullptr;
  std::string objections;  // of those before the choice
  for (const Kernel& kernel : kernels()) {
    if (!runs_on(kernel, context.device.device.kind)) continue;
    choice.verdicts.push_back(verdict(kernel, problem, context));
    const KernelVerdict& said = choice.verdicts.back();
    if (choice.kernel != nullptr || !kernel.automatic || !computes(kernel, problem)) continue;
    if (objection_of(said).empty()) {
      choice.kernel = &kernel;
      continue;
    }
    if (said.refusal.empty() && declined == nullptr) declined = &kernel;
    objections +=
        fmt::format("{}{}: {}", objections.empty() ? "" : "; ", kernel.name, objection_of(said));
  }
  if (choice.kernel != nullptr) {
    choice.reason = objections.empty() ? "it is the best kernel of this device"
                                       : "others come before it: " + objections;
  } else if (declined != nullptr) {
    choice.kernel = declined;
    choice.reason = "no other computes it: " + objections;
  } else {
    choice.reason =
        objections.empty() ? "it has no kernel that is chosen automatically" : objections;
  }
  return choice;
}

}  // namespace

KernelVerdict verdict_of(const Kernel& kernel, const ForwardProblem& problem,
                         const PlanContext& context) {
  return verdict(kernel, problem, context);
}

KernelVerdict verdict_of(const Kernel& kernel, const BackwardProblem& problem,
                         const PlanContext& context) {
  return verdict(kernel, problem, context);
}

KernelChoice choose_kernel(const ForwardProblem& problem, const PlanContext& context) {
  return choose(problem, context);
}

KernelChoice choose_kernel(const BackwardProblem& problem, const PlanContext& context) {
  return choose(problem, context);
}

}  // namespace flashcore
